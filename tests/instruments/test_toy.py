import torch

from lmperf.instruments.toy import ToyModel


def test_toy_model_applies_its_layers_in_order():
    model, x = ToyModel(20, 5), torch.randn(8, 20)
    hidden = torch.relu(x @ model.fc1.weight.T)
    expected = torch.nn.functional.layer_norm(hidden, (10,)) @ model.fc2.weight.T
    torch.testing.assert_close(model(x), expected)
    assert [name for name, _ in model.named_children()] == ["fc1", "relu", "ln", "fc2"]
