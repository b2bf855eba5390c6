"""A quantiser of transformers: `from_pretrained(path, quantization_config=BaracudaConfig("int4"))` makes linear layers of few
bits, one at a time as their weights are read, or loads those that `save_pretrained` wrote."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch

from ...types import BaracudaError, InvalidProblemError, OperandTypeError, UnsupportedError
from ...types.gguf import GgufFormat
from ..torch.nn.quantize import KINDS, ends_in
from ..torch.nn.quantized import QuantizedLinear

try:
    from transformers.core_model_loading import ConversionOps
    from transformers.quantizers import HfQuantizer, auto
    from transformers.utils.quantization_config import QuantizationConfigMixin
except ImportError as error:
    import transformers

    raise UnsupportedError(
        f"interop.transformers: transformers {transformers.__version__} has no core_model_loading.ConversionOps",
        "use transformers 5, with which this was tested",
    ) from error

__all__ = ["BaracudaConfig", "BaracudaQuantizer"]

METHOD = "baracuda"
DTYPES = (torch.float16, torch.bfloat16)
SKIPPED = "skipped"
BYTES = {"int8": 1.0, "int4": 0.5, "nf4": 0.5}


class BaracudaConfig(QuantizationConfigMixin):  # type: ignore[misc, unused-ignore]
    """How the torch.nn.Linear layers of a model are quantised.

    `weights`: "int8", "int4", "nf4" or "gguf". `skip`: ends of the names of layers that stay, by default the output embeddings
    (lm_head). `options` are those of the kind's `of`: `group_size` and `symmetric` (int4), `block_size` and `double_quant` (nf4),
    `format` (gguf), `dynamic` (int8). A loaded model's config has `kept`: the layers that stay, by name, with the reason.
    """

    def __init__(
        self, weights: str = "int4", *, skip: Sequence[str] | None = None, kept: dict[str, str] | None = None,
        quant_method: str = METHOD, **options: Any,
    ) -> None:  # fmt: skip
        if weights not in KINDS:
            raise InvalidProblemError(
                f"BaracudaConfig: {weights!r} is no kind of weight", f"name one of {', '.join(KINDS)}"
            )
        if quant_method != METHOD:
            raise InvalidProblemError(f"BaracudaConfig: quant_method {quant_method!r}", f"it is always {METHOD!r}")
        known = [p.name for p in inspect.signature(KINDS[weights].of).parameters.values() if p.kind is p.KEYWORD_ONLY]
        for name in options:
            if name not in known:
                raise InvalidProblemError(
                    f"BaracudaConfig: {weights} has no option {name!r}", f"pass some of {', '.join(known)}"
                )
        if "format" in options:
            options["format"] = GgufFormat.of(options["format"], "BaracudaConfig: format").name
        if isinstance(skip, str):
            raise InvalidProblemError(f"BaracudaConfig: skip is the text {skip!r}", f"pass a list: [{skip!r}]")
        self.quant_method, self.weights = METHOD, weights
        self.skip = None if skip is None else list(skip)
        self.kept = dict(kept or {})
        self.options = options

    def to_dict(self) -> dict[str, Any]:
        """The arguments that make this config again, for `config.json`."""
        own = deepcopy(self.__dict__)
        return {**own.pop("options"), **own}

    def __iter__(self) -> Any:
        return iter(self.to_dict().items())


class BaracudaQuantizer(HfQuantizer):  # type: ignore[misc, unused-ignore]
    """What `from_pretrained` calls for a BaracudaConfig."""

    def __init__(self, quantization_config: BaracudaConfig, **kwargs: Any) -> None:
        super().__init__(deepcopy(quantization_config), **kwargs)  # `kept` is a model's own
        self.kind = KINDS[self.quantization_config.weights]
        self.pending: set[str] = set()  # names of weights that are to be quantised when they are read
        self.error: BaracudaError | None = None

    # ---- what transformers asks -------------------------------------------------------------------------------------------

    @property
    def is_trainable(self) -> bool:
        """Raises UnsupportedError: transformers' Trainer asks this before it trains a model."""
        raise UnsupportedError(
            f"interop.transformers: a model with {self.quantization_config.weights} weights is not trained",
            "train the model without a quantization_config, and quantise what it saved",
        )

    @property
    def is_compileable(self) -> bool:
        return True

    def is_serializable(self) -> bool:
        return True

    @property
    def quantized_element_size(self) -> float:
        """Bytes per weight, for device maps."""
        config = self.quantization_config
        if config.weights in BYTES:
            return BYTES[config.weights]
        block = GgufFormat.of(config.options.get("format", "Q8_0")).block
        return block.bytes_of(256) / 256

    def update_dtype(self, dtype: torch.dtype) -> torch.dtype:
        weights = self.quantization_config.weights
        taken = (*DTYPES, torch.float32) if weights == "gguf" else DTYPES
        if dtype not in taken:
            raise OperandTypeError(
                f"from_pretrained: {weights} weights with dtype={dtype}: activations of that dtype are not multiplied",
                f"pass dtype={' or '.join(map(str, taken))}",
            )
        return dtype

    def get_new_dtype(self, converter: Any, param: Any, dtype: Any) -> Any:
        """Arrays of a quantised weight keep the dtype that they were saved with: a cast would change the weight."""
        names = [name.rpartition(".") for name in converter.target_patterns]
        if any(path in self.layers and name in self.layers[path].weight_arrays for path, _, name in names):
            return None
        return super().get_new_dtype(converter, param, dtype)

    def param_needs_quantization(self, model: Any, param_name: str, **kwargs: Any) -> bool:
        return param_name in self.pending

    def get_quantize_ops(self) -> Any:
        return QuantizeWeights(self)

    # ---- before and after loading -----------------------------------------------------------------------------------------

    def _process_model_before_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        config = self.quantization_config
        recorded = config.kept if self.pre_quantized else {}
        config.kept, self.layers = {}, {}
        head = model.get_output_embeddings()
        for name, linear in [(n, m) for n, m in model.named_modules() if type(m) is torch.nn.Linear]:
            reason = self._reason(model, name, linear, head, recorded)
            if reason:
                config.kept[name] = reason
            elif self.pre_quantized:
                self.layers[name] = self.kind.empty(linear, **config.options)
                _put(model, name, self.layers[name])
            else:
                self.pending.add(f"{name}.weight")
        return model

    def _reason(self, model: Any, name: str, linear: Any, head: Any, recorded: dict[str, str]) -> str:
        """Why a layer stays, whatever its shape."""
        for other, why in recorded.items():  # names of a model with or without a head
            if ends_in(other, (name,)) or ends_in(name, (other,)):
                return why
        tied = model.all_tied_weights_keys
        if f"{name}.weight" in {*tied.keys(), *tied.values()}:
            return "its weight is tied to another"
        skip = self.quantization_config.skip
        if (linear is head) if skip is None else ends_in(name, skip):
            return SKIPPED
        if not self.should_be_converted(name, model):
            return "the model's class keeps it in more bits"
        return ""

    @staticmethod
    def should_be_converted(name: str, model: Any) -> bool:
        """Whether a model has no rule that keeps a layer in f32 where others are f16."""
        kept = {*(model._keep_in_fp32_modules or ()), *(getattr(model, "_keep_in_fp32_modules_strict", None) or ())}
        return not any(part in kept for part in name.split("."))

    def quantize(self, model: Any, name: str, weight: Any) -> dict[str, Any]:
        """Puts a layer of few bits where a linear one is, of its weight, which may be read before its bias. Returns the layer's
        arrays by name, or the weight if the kind has no such shape."""
        path = name.removesuffix(".weight")
        linear = model.get_submodule(path)
        source = _linear_of(weight)
        self.pending.discard(name)
        try:
            layer = self.kind.of(source, **self.quantization_config.options)
        except InvalidProblemError as error:
            self.quantization_config.kept[path] = str(error)
            return {name: weight}
        layer.bias = linear.bias
        _put(model, path, layer)
        arrays = {array: getattr(layer, array) for array in layer.weight_arrays}
        return {f"{path}.{array}": x for array, x in arrays.items() if x is not None}

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        if self.error is not None:
            raise self.error
        for name in sorted(self.pending):
            self.quantization_config.kept[name.removesuffix(".weight")] = "the checkpoint has no weight for it alone"
        self.pending.clear()
        self.layers.clear()
        layers = [layer for layer in model.modules() if isinstance(layer, QuantizedLinear)]
        if not layers:
            config = self.quantization_config
            why = [f"{name}: {reason}" for name, reason in config.kept.items() if reason != SKIPPED]
            raise InvalidProblemError(
                f"from_pretrained: no layer of {type(model).__name__} can have {config.weights} weights",
                why[0] if why else "its class has no torch.nn.Linear that is not skipped; load it without the config",
            )
        for layer in layers:
            layer.requires_grad_(False)
            del layer.weight
        return model

    def _dequantize(self, model: Any, dtype: Any = None) -> Any:
        for name, layer in [(n, m) for n, m in model.named_modules() if isinstance(m, QuantizedLinear)]:
            linear = _linear_of(layer.dequantize(dtype))
            linear.bias = None if layer.bias is None else torch.nn.Parameter(layer.bias.to(dtype))
            model.set_submodule(name, linear.train(layer.training))
        return model


def _linear_of(weight: Any) -> torch.nn.Linear:
    """A layer without bias of a weight."""
    made = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    made.weight = torch.nn.Parameter(weight, requires_grad=False)
    return made


def _put(model: Any, name: str, layer: QuantizedLinear) -> None:
    """Puts a layer into a model that is being loaded. Until that is done it has an attribute `weight` without values: models'
    classes initialise the weights of the layers below them, unless they are marked as read."""
    weight = torch.empty((layer.out_features, layer.in_features), device="meta")
    weight._is_hf_initialized = True
    layer.weight = weight
    model.set_submodule(name, layer)


class QuantizeWeights(ConversionOps):  # type: ignore[misc, unused-ignore]
    """Quantises weights as they are read. transformers turns errors here into lines of its report, so the first one is kept, and
    raised when the model is made."""

    def __init__(self, quantizer: BaracudaQuantizer) -> None:
        self.quantizer = quantizer

    def convert(
        self, input_dict: dict[str, Any], model: Any = None, missing_keys: set[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in input_dict.items():
            if name not in self.quantizer.pending or self.quantizer.error is not None:
                made[name] = value
                continue
            try:
                arrays = self.quantizer.quantize(model, name, value[0] if isinstance(value, list) else value)
            except BaracudaError as error:
                self.quantizer.error = error
                made[name] = value
                continue
            made |= arrays
            if missing_keys is not None and name not in arrays:
                missing_keys.discard(name)
        return made


for _mapping in (auto.AUTO_QUANTIZATION_CONFIG_MAPPING, auto.AUTO_QUANTIZER_MAPPING):
    _mapping.pop(METHOD, None)  # of an earlier import of this module
auto.register_quantization_config(METHOD)(BaracudaConfig)
auto.register_quantizer(METHOD)(BaracudaQuantizer)
