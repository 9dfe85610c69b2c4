"""The toy model of table M2, which shows how autocast treats linear layers, ReLU and a norm."""

from torch import Tensor, nn


class ToyModel(nn.Module):
    """fc1 -> relu -> layer norm -> fc2: [batch, in_features] -> [batch, out_features] logits."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(in_features, 10, bias=False)
        self.relu = nn.ReLU()
        self.ln = nn.LayerNorm(10)
        self.fc2 = nn.Linear(10, out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.ln(self.relu(self.fc1(x))))
