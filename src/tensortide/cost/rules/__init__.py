"""The rules for ATen and its companions, by family. Each module registers its rules when it is imported."""
