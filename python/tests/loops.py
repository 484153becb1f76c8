"""The end of a training step, as most tests have it."""


def end_of_step(loss, opt, losses, s=None):
    """Backward pass and update; the loss is kept, and a plan that is being made is waited for."""
    loss.backward()
    opt.step()
    opt.zero_grad()
    losses.append(loss.item())
    if s is not None:
        s.wait_for_plan(30)
