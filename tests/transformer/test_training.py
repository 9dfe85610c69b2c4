import torch

from lmperf.transformer.model import TransformerLM, cross_entropy
from lmperf.transformer.training import adamw, train_step


def test_steps_lower_the_loss_and_keep_gradients(dtype="autocast_bfloat16"):
    torch.manual_seed(0)
    model = TransformerLM(31, 16, 16, 1, 2, 32, 1e4)
    tokens = torch.randint(0, 31, (2, 16))
    optimizer = adamw(model, learning_rate=1e-2)
    losses = [train_step(model, optimizer, tokens, tokens, dtype).item() for _ in range(20)]
    assert losses[-1] < 0.7 * losses[0]
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())


def test_step_gradients_are_those_of_the_cross_entropy():
    torch.manual_seed(0)
    model = TransformerLM(31, 16, 16, 1, 2, 32, 1e4).double()
    tokens, targets = torch.randint(0, 31, (2, 2, 16))
    expected = torch.autograd.grad(cross_entropy(model(tokens), targets), list(model.parameters()))
    train_step(model, adamw(model), tokens, targets)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
