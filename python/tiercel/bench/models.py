"""The models that the benchmark trains: each gives a step to call, on the current device."""

from __future__ import annotations

from typing import Any, Callable

import torch


def gpt2(checkpoint: str = "none", compiled: bool = False, layers: int = 24) -> Callable[[], torch.Tensor]:
    """GPT-2 of 24 layers of 2048, batch 8 x 1024, bf16, fused AdamW."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=layers, n_embd=2048, n_head=16, n_positions=1024, vocab_size=50257, use_cache=False)
    with torch.device("cuda"):
        model = GPT2LMHeadModel(config).to(torch.bfloat16).train()
    if checkpoint == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    ids = torch.randint(0, 50257, (8, 1024), device="cuda")
    run = torch.compile(model) if compiled else model
    return _stepper(model, torch.optim.AdamW(model.parameters(), 1e-4, fused=True), lambda: run(ids, labels=ids).loss)


def llama(checkpoint: str = "none", compiled: bool = False) -> Callable[[], torch.Tensor]:
    """A Llama of 8 layers of 4096, batch 4 x 2048, bf16, fused AdamW."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=8, num_attention_heads=32,
                         num_key_value_heads=8, vocab_size=32000, max_position_embeddings=2048, use_cache=False)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16).train()
    if checkpoint == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    ids = torch.randint(0, 32000, (4, 2048), device="cuda")
    run = torch.compile(model) if compiled else model
    return _stepper(model, torch.optim.AdamW(model.parameters(), 1e-4, fused=True), lambda: run(input_ids=ids, labels=ids).loss)


def resnet152(checkpoint: str = "none", compiled: bool = False) -> Callable[[], torch.Tensor]:
    """ResNet-152, batch 256 of 224 x 224, TF32, channels last, SGD with momentum."""
    import torchvision

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    model = torchvision.models.resnet152().to("cuda", memory_format=torch.channels_last).train()
    if checkpoint == "full":
        from torch.utils.checkpoint import checkpoint as again

        for layer in (model.layer1, model.layer2, model.layer3, model.layer4):
            for block in layer:
                inner = block.forward
                block.forward = lambda x, inner=inner: again(inner, x, use_reentrant=False)
    images = torch.randn(256, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (256,), device="cuda")
    loss = torch.nn.CrossEntropyLoss()
    run = torch.compile(model) if compiled else model
    return _stepper(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), lambda: loss(run(images), labels))


def _stepper(model: Any, optimizer: Any, forward: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    def step() -> torch.Tensor:
        loss = forward()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


ALL = {"gpt2": gpt2, "llama": llama, "resnet152": resnet152}
