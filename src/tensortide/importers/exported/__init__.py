"""Programs of torch.export and torch.fx: .pt2 files, ExportedPrograms, GraphModules, joint graphs of AOTAutograd."""
