"""A zoo of models of transformers and torchvision, small and with random weights: three steps under limits of memory against plain ones.

    python -m tiercel.bench.zoo [--limits 50%,30%] [--models gpt2,vit,…] [--compile] [--steps 3] [--json FILE]

Eager results must be the same bits: losses, parameters and buffers. Compiled ones are equal to rounding, because other operations are
fused where something is made again: losses within 1e-4 of each other, and a second run under the same limit must be the bits of the first.
Tensors are the processor's; the peak is what plain training has alive at once, as a session without pressure counts it. Where a
single operation wants more than the limit, as the largest layer of a small model may, the row says so: no limit below that can work.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any, Callable, Optional

import torch
import torch.nn.functional as F

import tiercel

Make = Callable[[], tuple[torch.nn.Module, Callable[[torch.nn.Module], torch.Tensor]]]

_WORDS = 1000


def _tokens(rows: int = 4, length: int = 32) -> torch.Tensor:
    return torch.randint(0, _WORDS, (rows, length))


def _language(config: str, model: str, **more: Any) -> Make:
    """A model of transformers that predicts words."""
    def make() -> Any:
        import transformers

        net = getattr(transformers, model)(getattr(transformers, config)(**more))

        def loss(net: torch.nn.Module) -> torch.Tensor:
            ids = _tokens()
            return net(input_ids=ids, labels=ids).loss

        return net, loss

    return make


def _summarizer(config: str, model: str, **more: Any) -> Make:
    """A model of transformers with an encoder and a decoder."""
    def make() -> Any:
        import transformers

        net = getattr(transformers, model)(getattr(transformers, config)(**more))
        return net, lambda net: net(input_ids=_tokens(), labels=_tokens(4, 16)).loss

    return make


def _seer(config: str, model: str, size: int = 32, **more: Any) -> Make:
    """A model of transformers that names pictures."""
    def make() -> Any:
        import transformers

        net = getattr(transformers, model)(getattr(transformers, config)(num_labels=10, **more))

        def loss(net: torch.nn.Module) -> torch.Tensor:
            return F.cross_entropy(net(pixel_values=torch.randn(4, 3, size, size)).logits, torch.arange(4) % 10)

        return net, loss

    return make


def _hearer() -> Any:
    import transformers

    config = transformers.WhisperConfig(vocab_size=_WORDS, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                                        encoder_ffn_dim=256, decoder_ffn_dim=256, num_mel_bins=16, max_source_positions=64, max_target_positions=64,
                                        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None)
    net = transformers.WhisperForConditionalGeneration(config)
    return net, lambda net: net(input_features=torch.randn(2, 16, 128), labels=_tokens(2, 16)).loss


def _picture(name: str, size: int = 64, rows: int = 4, **more: Any) -> Make:
    """A network of torchvision."""
    def make() -> Any:
        import torchvision

        net = getattr(torchvision.models, name)(weights=None, num_classes=10, **more)

        def loss(net: torch.nn.Module) -> torch.Tensor:
            out = net(torch.randn(rows, 3, size, size))
            out = out if isinstance(out, torch.Tensor) else out[0]
            return F.cross_entropy(out, torch.arange(rows) % 10)

        return net, loss

    return make


_SMALL = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 256}
_LLAMA = {**_SMALL, "vocab_size": _WORDS, "num_key_value_heads": 2, "max_position_embeddings": 128}

ZOO: dict[str, Make] = {
    "gpt2": _language("GPT2Config", "GPT2LMHeadModel", vocab_size=_WORDS, n_embd=64, n_layer=3, n_head=4, n_positions=128),
    "gpt-neo": _language("GPTNeoConfig", "GPTNeoForCausalLM", vocab_size=_WORDS, hidden_size=64, num_layers=2, num_heads=4, max_position_embeddings=128,
                         attention_types=[[["global", "local"], 1]]),
    "opt": _language("OPTConfig", "OPTForCausalLM", vocab_size=_WORDS, hidden_size=64, num_hidden_layers=3, num_attention_heads=4, ffn_dim=256,
                     word_embed_proj_dim=64, max_position_embeddings=128),
    "llama": _language("LlamaConfig", "LlamaForCausalLM", **_LLAMA),
    "mistral": _language("MistralConfig", "MistralForCausalLM", **_LLAMA),
    "qwen2": _language("Qwen2Config", "Qwen2ForCausalLM", **_LLAMA),
    "mixtral": _language("MixtralConfig", "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2, **_LLAMA),
    "gemma": _language("GemmaConfig", "GemmaForCausalLM", head_dim=16, **_LLAMA),
    "mamba": _language("MambaConfig", "MambaForCausalLM", vocab_size=_WORDS, hidden_size=64, num_hidden_layers=2, state_size=8),
    "bert": _language("BertConfig", "BertForMaskedLM", vocab_size=_WORDS, **_SMALL),
    "roberta": _language("RobertaConfig", "RobertaForMaskedLM", vocab_size=_WORDS, max_position_embeddings=130, **_SMALL),
    "albert": _language("AlbertConfig", "AlbertForMaskedLM", vocab_size=_WORDS, embedding_size=32, **_SMALL),
    "distilbert": _language("DistilBertConfig", "DistilBertForMaskedLM", vocab_size=_WORDS, dim=64, n_layers=3, n_heads=4, hidden_dim=256),
    "electra": _language("ElectraConfig", "ElectraForMaskedLM", vocab_size=_WORDS, embedding_size=32, **_SMALL),
    "t5": _summarizer("T5Config", "T5ForConditionalGeneration", vocab_size=_WORDS, d_model=64, d_ff=256, d_kv=16, num_layers=2, num_heads=4,
                      decoder_start_token_id=0),
    "bart": _summarizer("BartConfig", "BartForConditionalGeneration", vocab_size=_WORDS, d_model=64, encoder_layers=2, decoder_layers=2,
                        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256, max_position_embeddings=128),
    "whisper": _hearer,
    "vit": _seer("ViTConfig", "ViTForImageClassification", image_size=32, patch_size=8, **_SMALL),
    "deit": _seer("DeiTConfig", "DeiTForImageClassification", image_size=32, patch_size=8, **_SMALL),
    "convnext-hf": _seer("ConvNextConfig", "ConvNextForImageClassification", 64, hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1]),
    "resnet18": _picture("resnet18"),
    "resnet50": _picture("resnet50", rows=2),
    "vgg11": _picture("vgg11", 32),
    "densenet121": _picture("densenet121", rows=2),
    "mobilenet-v2": _picture("mobilenet_v2"),
    "mobilenet-v3": _picture("mobilenet_v3_small"),
    "efficientnet": _picture("efficientnet_b0", rows=2),
    "squeezenet": _picture("squeezenet1_1"),
    "shufflenet": _picture("shufflenet_v2_x0_5"),
    "googlenet": _picture("googlenet", init_weights=False),
    "regnet": _picture("regnet_y_400mf", rows=2),
    "mnasnet": _picture("mnasnet0_5"),
    "swin": _picture("swin_t", 32, 2),
    "convnext": _picture("convnext_tiny", 32, 2),
    "vit-b16": _picture("vit_b_16", 32, 2, image_size=32),
}
#: Those that are compiled unless others are named.
COMPILED = ["gpt2", "llama", "opt", "bert", "distilbert", "electra", "vit", "resnet18", "mobilenet-v2", "squeezenet", "t5", "bart"]


def train(make: Make, steps: int, compiled: bool = False, session: Any = None) -> tuple[list[float], list[torch.Tensor]]:
    """Losses, and parameters and buffers, of a short training that follows from its seed."""
    torch.manual_seed(0)
    net, loss_of = make()
    net.train()
    run = torch.compile(net) if compiled else net
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, foreach=False)
    losses = []
    for _ in range(steps):
        loss = loss_of(run)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if session is not None:
            session.wait_for_plan(60)
    return losses, [t.detach().clone() for t in (*net.parameters(), *net.buffers())]


def session(limit: int) -> tiercel.Session:
    """The session of a run."""
    return tiercel.Session(limit, "8GiB", device="cpu", least="4KiB", seconds=1.0, learned=False)


def peak_of(make: Make) -> int:
    """What plain training has alive at once."""
    with session(8 << 30) as s:
        train(make, 2)
        return s.status["peak"]


def compare(plain: Any, limited: Any, compiled: bool) -> str:
    """How two runs differ, or nothing."""
    if compiled:
        far = max(abs(a - b) / max(abs(a), 1e-6) for a, b in zip(plain[0], limited[0]))
        return "" if far <= 1e-4 else f"losses differ by {far:.1e}"
    if plain[0] != limited[0]:
        return "losses differ"
    return "" if all(torch.equal(a, b) for a, b in zip(plain[1], limited[1])) else "parameters differ"


def run(name: str, shares: list[float], steps: int, compiled: bool = False) -> list[dict]:
    """One model under some shares of its peak."""
    make, rows = ZOO[name], []
    plain = train(make, steps, compiled)
    if compare(plain, train(make, steps, compiled), compiled):
        return [{"model": name, "share": None, "verdict": "does not repeat itself without us"}]
    peak = peak_of(make)
    for share in shares:
        limit, began = int(peak * share), time.perf_counter()
        row: dict = {"model": name, "share": share, "peak": peak, "limit": limit, "compiled": compiled}
        try:
            with session(limit) as s:
                found = train(make, steps, compiled, s)
                status = s.status
            again: Optional[Any] = None
            if compiled:
                with session(limit):
                    again = train(make, steps, compiled)
            row["verdict"] = compare(plain, found, compiled) or ("another run differs" if again is not None and compare(found, again, False) else "")
            row["verdict"] = row["verdict"] or ("equal to rounding" if compiled else "same bits")
            row.update(used=status["peak"], moved=sum(status["moved"]), planned=sum(one["mode"] == "planned" for one in status["history"]))
            if status["peak"] > limit and not compiled:
                row["verdict"] = "more than the limit"
        except MemoryError as error:
            row["verdict"] = f"cannot: {str(error).split('; the limit')[0].removeprefix('tiercel: ')}"
        row["seconds"] = time.perf_counter() - began
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tiercel.bench.zoo", description=__doc__.split("\n")[0])
    parser.add_argument("--limits", default="50%,30%")
    parser.add_argument("--models", default="")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--json")
    asked = parser.parse_args()
    names = asked.models.split(",") if asked.models else COMPILED if asked.compile else list(ZOO)
    shares, rows, bad = [float(share.rstrip("%")) / 100 for share in asked.limits.split(",")], [], 0
    print(f"{'model':14}{'limit':>7}{'peak':>12}{'used':>12}{'moved':>12}{'planned':>9}{'seconds':>9}  verdict")
    for name in names:
        for row in run(name, shares, asked.steps, asked.compile):
            rows.append(row)
            show = lambda key: tiercel.show_bytes(row[key]) if key in row else "-"
            share = "-" if row["share"] is None else f"{row['share']:.0%}"
            print(f"{name:14}{share:>7}{show('peak'):>12}{show('used'):>12}{show('moved'):>12}{row.get('planned', '-'):>9}{row.get('seconds', 0):>9.1f}  {row['verdict']}", flush=True)
            bad += row["verdict"] not in ("same bits", "equal to rounding", "does not repeat itself without us") and not row["verdict"].startswith("cannot")
    good = sum(row["verdict"] in ("same bits", "equal to rounding") for row in rows)
    print(f"{len(names)} models, {len(rows)} rows: {good} as they must be, {bad} not, {len(rows) - good - bad} that cannot be compared")
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
