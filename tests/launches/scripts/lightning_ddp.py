"""Train a small model with Lightning: ``python lightning_ddp.py STRATEGY`` (ddp, fsdp)."""

import sys

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """The mean square error of a reconstruction."""
        return nn.functional.mse_loss(self.layers(batch[0]), batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer."""
        return torch.optim.AdamW(self.parameters())


data = DataLoader(TensorDataset(torch.randn(64, 64)), batch_size=8)
trainer = lightning.Trainer(
    accelerator="gpu", devices="auto", strategy=sys.argv[1], max_steps=4, logger=False, enable_checkpointing=False
)
trainer.fit(Model(), data)
