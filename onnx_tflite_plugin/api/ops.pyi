"""Generated from the schemas of ONNX, opset 26, by tools/ops_stub.py."""

from collections.abc import Callable, Sequence
from typing import Any, overload

from onnx_tflite_plugin.api.values import Graph, Value, ValueLike
from onnx_tflite_plugin.source.model import Array

class Named:
    """An operator that is not known to editors."""
    @overload
    def __call__(self, *operands: ValueLike | None, outputs: int, **attributes: Any) -> tuple[Value, ...]: ...
    @overload
    def __call__(self, *operands: ValueLike | None, outputs: None = None, **attributes: Any) -> Value: ...

class AnyOps:
    """Operators of another domain."""
    def __getattr__(self, op_type: str) -> Callable[..., Any]: ...

class Ops:
    """ONNX operators as methods."""
    def __init__(self, emit: Callable[..., Sequence[Value]], domain: str = "") -> None: ...
    def domain(self, name: str) -> AnyOps: ...
    def named(self, op_type: str) -> Named: ...
    def Abs(self, x: ValueLike, /) -> Value: ...
    def Acos(self, input: ValueLike, /) -> Value: ...
    def Acosh(self, input: ValueLike, /) -> Value: ...
    def Add(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def AffineGrid(self, theta: ValueLike, size: ValueLike, /, *, align_corners: int | None = 0) -> Value: ...
    def And(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def ArgMax(
        self, data: ValueLike, /, *, axis: int | None = 0, keepdims: int | None = 1, select_last_index: int | None = 0
    ) -> Value: ...
    def ArgMin(
        self, data: ValueLike, /, *, axis: int | None = 0, keepdims: int | None = 1, select_last_index: int | None = 0
    ) -> Value: ...
    def Asin(self, input: ValueLike, /) -> Value: ...
    def Asinh(self, input: ValueLike, /) -> Value: ...
    def Atan(self, input: ValueLike, /) -> Value: ...
    def Atanh(self, input: ValueLike, /) -> Value: ...
    @overload
    def Attention(
        self,
        q: ValueLike,
        k: ValueLike,
        v: ValueLike,
        attn_mask: ValueLike | None = None,
        past_key: ValueLike | None = None,
        past_value: ValueLike | None = None,
        nonpad_kv_seqlen: ValueLike | None = None,
        /,
        *,
        outputs: int,
        is_causal: int | None = 0,
        kv_num_heads: int | None = None,
        left_window_size: int | None = -1,
        q_num_heads: int | None = None,
        qk_matmul_output_mode: int | None = 0,
        right_window_size: int | None = -1,
        scale: float | None = None,
        softcap: float | None = 0.0,
        softmax_precision: int | str | None = None,
    ) -> tuple[Value, ...]: ...
    @overload
    def Attention(
        self,
        q: ValueLike,
        k: ValueLike,
        v: ValueLike,
        attn_mask: ValueLike | None = None,
        past_key: ValueLike | None = None,
        past_value: ValueLike | None = None,
        nonpad_kv_seqlen: ValueLike | None = None,
        /,
        *,
        outputs: None = None,
        is_causal: int | None = 0,
        kv_num_heads: int | None = None,
        left_window_size: int | None = -1,
        q_num_heads: int | None = None,
        qk_matmul_output_mode: int | None = 0,
        right_window_size: int | None = -1,
        scale: float | None = None,
        softcap: float | None = 0.0,
        softmax_precision: int | str | None = None,
    ) -> Value: ...
    def AveragePool(
        self,
        x: ValueLike,
        /,
        *,
        kernel_shape: Sequence[int],
        auto_pad: str | None = "NOTSET",
        ceil_mode: int | None = 0,
        count_include_pad: int | None = 0,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    @overload
    def BatchNormalization(
        self,
        x: ValueLike,
        scale: ValueLike,
        b: ValueLike,
        input_mean: ValueLike,
        input_var: ValueLike,
        /,
        *,
        outputs: int,
        epsilon: float | None = 1e-05,
        momentum: float | None = 0.9,
        training_mode: int | None = 0,
    ) -> tuple[Value, ...]: ...
    @overload
    def BatchNormalization(
        self,
        x: ValueLike,
        scale: ValueLike,
        b: ValueLike,
        input_mean: ValueLike,
        input_var: ValueLike,
        /,
        *,
        outputs: None = None,
        epsilon: float | None = 1e-05,
        momentum: float | None = 0.9,
        training_mode: int | None = 0,
    ) -> Value: ...
    def Bernoulli(self, input: ValueLike, /, *, dtype: int | str | None = None, seed: float | None = None) -> Value: ...
    def BitCast(self, input: ValueLike, /, *, to: int | str) -> Value: ...
    def BitShift(self, x: ValueLike, y: ValueLike, /, *, direction: str) -> Value: ...
    def BitwiseAnd(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def BitwiseNot(self, x: ValueLike, /) -> Value: ...
    def BitwiseOr(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def BitwiseXor(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def BlackmanWindow(
        self, size: ValueLike, /, *, output_datatype: int | None = 1, periodic: int | None = 1
    ) -> Value: ...
    def Cast(
        self, input: ValueLike, /, *, to: int | str, round_mode: str | None = "up", saturate: int | None = 1
    ) -> Value: ...
    def CastLike(
        self, input: ValueLike, target_type: ValueLike, /, *, round_mode: str | None = "up", saturate: int | None = 1
    ) -> Value: ...
    def Ceil(self, x: ValueLike, /) -> Value: ...
    def Celu(self, x: ValueLike, /, *, alpha: float | None = 1.0) -> Value: ...
    def CenterCropPad(
        self, input_data: ValueLike, shape: ValueLike, /, *, axes: Sequence[int] | None = None
    ) -> Value: ...
    def Clip(self, input: ValueLike, min: ValueLike | None = None, max: ValueLike | None = None, /) -> Value: ...
    def Col2Im(
        self,
        input: ValueLike,
        image_shape: ValueLike,
        block_shape: ValueLike,
        /,
        *,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def Compress(self, input: ValueLike, condition: ValueLike, /, *, axis: int | None = None) -> Value: ...
    def Concat(self, *inputs: ValueLike | None, axis: int) -> Value: ...
    def ConcatFromSequence(self, input_sequence: ValueLike, /, *, axis: int, new_axis: int | None = 0) -> Value: ...
    def Constant(
        self,
        *,
        value: Array | None = None,
        value_float: float | None = None,
        value_floats: Sequence[float] | None = None,
        value_int: int | None = None,
        value_ints: Sequence[int] | None = None,
        value_string: str | None = None,
        value_strings: Sequence[str] | None = None,
    ) -> Value: ...
    def ConstantOfShape(self, input: ValueLike, /, *, value: Array | None = None) -> Value: ...
    def Conv(
        self,
        x: ValueLike,
        w: ValueLike,
        b: ValueLike | None = None,
        /,
        *,
        auto_pad: str | None = "NOTSET",
        dilations: Sequence[int] | None = None,
        group: int | None = 1,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def ConvInteger(
        self,
        x: ValueLike,
        w: ValueLike,
        x_zero_point: ValueLike | None = None,
        w_zero_point: ValueLike | None = None,
        /,
        *,
        auto_pad: str | None = "NOTSET",
        dilations: Sequence[int] | None = None,
        group: int | None = 1,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def ConvTranspose(
        self,
        x: ValueLike,
        w: ValueLike,
        b: ValueLike | None = None,
        /,
        *,
        auto_pad: str | None = "NOTSET",
        dilations: Sequence[int] | None = None,
        group: int | None = 1,
        kernel_shape: Sequence[int] | None = None,
        output_padding: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def Cos(self, input: ValueLike, /) -> Value: ...
    def Cosh(self, input: ValueLike, /) -> Value: ...
    def CumProd(
        self, x: ValueLike, axis: ValueLike, /, *, exclusive: int | None = 0, reverse: int | None = 0
    ) -> Value: ...
    def CumSum(
        self, x: ValueLike, axis: ValueLike, /, *, exclusive: int | None = 0, reverse: int | None = 0
    ) -> Value: ...
    def DFT(
        self,
        input: ValueLike,
        dft_length: ValueLike | None = None,
        axis: ValueLike | None = None,
        /,
        *,
        inverse: int | None = 0,
        onesided: int | None = 0,
    ) -> Value: ...
    def DeformConv(
        self,
        x: ValueLike,
        w: ValueLike,
        offset: ValueLike,
        b: ValueLike | None = None,
        mask: ValueLike | None = None,
        /,
        *,
        dilations: Sequence[int] | None = None,
        group: int | None = 1,
        kernel_shape: Sequence[int] | None = None,
        offset_group: int | None = 1,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def DepthToSpace(self, input: ValueLike, /, *, blocksize: int, mode: str | None = "DCR") -> Value: ...
    def DequantizeLinear(
        self,
        x: ValueLike,
        x_scale: ValueLike,
        x_zero_point: ValueLike | None = None,
        /,
        *,
        axis: int | None = 1,
        block_size: int | None = 0,
        output_dtype: int | str | None = 0,
    ) -> Value: ...
    def Det(self, x: ValueLike, /) -> Value: ...
    def Div(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    @overload
    def Dropout(
        self,
        data: ValueLike,
        ratio: ValueLike | None = None,
        training_mode: ValueLike | None = None,
        /,
        *,
        outputs: int,
        seed: int | None = None,
    ) -> tuple[Value, ...]: ...
    @overload
    def Dropout(
        self,
        data: ValueLike,
        ratio: ValueLike | None = None,
        training_mode: ValueLike | None = None,
        /,
        *,
        outputs: None = None,
        seed: int | None = None,
    ) -> Value: ...
    def DynamicQuantizeLinear(self, x: ValueLike, /, *, outputs: int = 3) -> tuple[Value, Value, Value]: ...
    def Einsum(self, *inputs: ValueLike | None, equation: str) -> Value: ...
    def Elu(self, x: ValueLike, /, *, alpha: float | None = 1.0) -> Value: ...
    def Equal(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def Erf(self, input: ValueLike, /) -> Value: ...
    def Exp(self, input: ValueLike, /) -> Value: ...
    def Expand(self, input: ValueLike, shape: ValueLike, /) -> Value: ...
    def EyeLike(self, input: ValueLike, /, *, dtype: int | str | None = None, k: int | None = 0) -> Value: ...
    def Flatten(self, input: ValueLike, /, *, axis: int | None = 1) -> Value: ...
    def Floor(self, x: ValueLike, /) -> Value: ...
    @overload
    def GRU(
        self,
        x: ValueLike,
        w: ValueLike,
        r: ValueLike,
        b: ValueLike | None = None,
        sequence_lens: ValueLike | None = None,
        initial_h: ValueLike | None = None,
        /,
        *,
        outputs: int,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = "forward",
        hidden_size: int | None = None,
        layout: int | None = 0,
        linear_before_reset: int | None = 0,
    ) -> tuple[Value, ...]: ...
    @overload
    def GRU(
        self,
        x: ValueLike,
        w: ValueLike,
        r: ValueLike,
        b: ValueLike | None = None,
        sequence_lens: ValueLike | None = None,
        initial_h: ValueLike | None = None,
        /,
        *,
        outputs: None = None,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = "forward",
        hidden_size: int | None = None,
        layout: int | None = 0,
        linear_before_reset: int | None = 0,
    ) -> Value: ...
    def Gather(self, data: ValueLike, indices: ValueLike, /, *, axis: int | None = 0) -> Value: ...
    def GatherElements(self, data: ValueLike, indices: ValueLike, /, *, axis: int | None = 0) -> Value: ...
    def GatherND(self, data: ValueLike, indices: ValueLike, /, *, batch_dims: int | None = 0) -> Value: ...
    def Gelu(self, x: ValueLike, /, *, approximate: str | None = "none") -> Value: ...
    def Gemm(
        self,
        a: ValueLike,
        b: ValueLike,
        c: ValueLike | None = None,
        /,
        *,
        alpha: float | None = 1.0,
        beta: float | None = 1.0,
        transA: int | None = 0,
        transB: int | None = 0,
    ) -> Value: ...
    def GlobalAveragePool(self, x: ValueLike, /) -> Value: ...
    def GlobalLpPool(self, x: ValueLike, /, *, p: int | None = 2) -> Value: ...
    def GlobalMaxPool(self, x: ValueLike, /) -> Value: ...
    def Greater(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def GreaterOrEqual(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def GridSample(
        self,
        x: ValueLike,
        grid: ValueLike,
        /,
        *,
        align_corners: int | None = 0,
        mode: str | None = "linear",
        padding_mode: str | None = "zeros",
    ) -> Value: ...
    def GroupNormalization(
        self,
        x: ValueLike,
        scale: ValueLike,
        bias: ValueLike,
        /,
        *,
        num_groups: int,
        epsilon: float | None = 1e-05,
        stash_type: int | str | None = 1,
    ) -> Value: ...
    def HammingWindow(
        self, size: ValueLike, /, *, output_datatype: int | None = 1, periodic: int | None = 1
    ) -> Value: ...
    def HannWindow(self, size: ValueLike, /, *, output_datatype: int | None = 1, periodic: int | None = 1) -> Value: ...
    def HardSigmoid(self, x: ValueLike, /, *, alpha: float | None = 0.2, beta: float | None = 0.5) -> Value: ...
    def HardSwish(self, x: ValueLike, /) -> Value: ...
    def Hardmax(self, input: ValueLike, /, *, axis: int | None = -1) -> Value: ...
    def Identity(self, input: ValueLike, /) -> Value: ...
    @overload
    def If(self, cond: ValueLike, /, *, outputs: int, else_branch: Graph, then_branch: Graph) -> tuple[Value, ...]: ...
    @overload
    def If(self, cond: ValueLike, /, *, outputs: None = None, else_branch: Graph, then_branch: Graph) -> Value: ...
    def ImageDecoder(self, encoded_stream: ValueLike, /, *, pixel_format: str | None = "RGB") -> Value: ...
    def InstanceNormalization(
        self, input: ValueLike, scale: ValueLike, b: ValueLike, /, *, epsilon: float | None = 1e-05
    ) -> Value: ...
    def IsInf(self, x: ValueLike, /, *, detect_negative: int | None = 1, detect_positive: int | None = 1) -> Value: ...
    def IsNaN(self, x: ValueLike, /) -> Value: ...
    def LRN(
        self,
        x: ValueLike,
        /,
        *,
        size: int,
        alpha: float | None = 1e-04,
        beta: float | None = 0.75,
        bias: float | None = 1.0,
    ) -> Value: ...
    @overload
    def LSTM(
        self,
        x: ValueLike,
        w: ValueLike,
        r: ValueLike,
        b: ValueLike | None = None,
        sequence_lens: ValueLike | None = None,
        initial_h: ValueLike | None = None,
        initial_c: ValueLike | None = None,
        p: ValueLike | None = None,
        /,
        *,
        outputs: int,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = "forward",
        hidden_size: int | None = None,
        input_forget: int | None = 0,
        layout: int | None = 0,
    ) -> tuple[Value, ...]: ...
    @overload
    def LSTM(
        self,
        x: ValueLike,
        w: ValueLike,
        r: ValueLike,
        b: ValueLike | None = None,
        sequence_lens: ValueLike | None = None,
        initial_h: ValueLike | None = None,
        initial_c: ValueLike | None = None,
        p: ValueLike | None = None,
        /,
        *,
        outputs: None = None,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = "forward",
        hidden_size: int | None = None,
        input_forget: int | None = 0,
        layout: int | None = 0,
    ) -> Value: ...
    @overload
    def LayerNormalization(
        self,
        x: ValueLike,
        scale: ValueLike,
        b: ValueLike | None = None,
        /,
        *,
        outputs: int,
        axis: int | None = -1,
        epsilon: float | None = 1e-05,
        stash_type: int | str | None = 1,
    ) -> tuple[Value, ...]: ...
    @overload
    def LayerNormalization(
        self,
        x: ValueLike,
        scale: ValueLike,
        b: ValueLike | None = None,
        /,
        *,
        outputs: None = None,
        axis: int | None = -1,
        epsilon: float | None = 1e-05,
        stash_type: int | str | None = 1,
    ) -> Value: ...
    def LeakyRelu(self, x: ValueLike, /, *, alpha: float | None = 0.01) -> Value: ...
    def Less(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def LessOrEqual(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def Log(self, input: ValueLike, /) -> Value: ...
    def LogSoftmax(self, input: ValueLike, /, *, axis: int | None = -1) -> Value: ...
    @overload
    def Loop(
        self,
        m: ValueLike | None = None,
        cond: ValueLike | None = None,
        /,
        *v_initial: ValueLike | None,
        outputs: int,
        body: Graph,
    ) -> tuple[Value, ...]: ...
    @overload
    def Loop(
        self,
        m: ValueLike | None = None,
        cond: ValueLike | None = None,
        /,
        *v_initial: ValueLike | None,
        outputs: None = None,
        body: Graph,
    ) -> Value: ...
    def LpNormalization(self, input: ValueLike, /, *, axis: int | None = -1, p: int | None = 2) -> Value: ...
    def LpPool(
        self,
        x: ValueLike,
        /,
        *,
        kernel_shape: Sequence[int],
        auto_pad: str | None = "NOTSET",
        ceil_mode: int | None = 0,
        dilations: Sequence[int] | None = None,
        p: int | None = 2,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def MatMul(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def MatMulInteger(
        self,
        a: ValueLike,
        b: ValueLike,
        a_zero_point: ValueLike | None = None,
        b_zero_point: ValueLike | None = None,
        /,
    ) -> Value: ...
    def Max(self, *data_0: ValueLike | None) -> Value: ...
    @overload
    def MaxPool(
        self,
        x: ValueLike,
        /,
        *,
        outputs: int,
        kernel_shape: Sequence[int],
        auto_pad: str | None = "NOTSET",
        ceil_mode: int | None = 0,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        storage_order: int | None = 0,
        strides: Sequence[int] | None = None,
    ) -> tuple[Value, ...]: ...
    @overload
    def MaxPool(
        self,
        x: ValueLike,
        /,
        *,
        outputs: None = None,
        kernel_shape: Sequence[int],
        auto_pad: str | None = "NOTSET",
        ceil_mode: int | None = 0,
        dilations: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        storage_order: int | None = 0,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def MaxRoiPool(
        self, x: ValueLike, rois: ValueLike, /, *, pooled_shape: Sequence[int], spatial_scale: float | None = 1.0
    ) -> Value: ...
    def MaxUnpool(
        self,
        x: ValueLike,
        i: ValueLike,
        output_shape: ValueLike | None = None,
        /,
        *,
        kernel_shape: Sequence[int],
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def Mean(self, *data_0: ValueLike | None) -> Value: ...
    def MeanVarianceNormalization(self, x: ValueLike, /, *, axes: Sequence[int] | None = None) -> Value: ...
    def MelWeightMatrix(
        self,
        num_mel_bins: ValueLike,
        dft_length: ValueLike,
        sample_rate: ValueLike,
        lower_edge_hertz: ValueLike,
        upper_edge_hertz: ValueLike,
        /,
        *,
        output_datatype: int | None = 1,
    ) -> Value: ...
    def Min(self, *data_0: ValueLike | None) -> Value: ...
    def Mish(self, x: ValueLike, /) -> Value: ...
    def Mod(self, a: ValueLike, b: ValueLike, /, *, fmod: int | None = 0) -> Value: ...
    def Mul(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def Multinomial(
        self,
        input: ValueLike,
        /,
        *,
        dtype: int | str | None = 6,
        sample_size: int | None = 1,
        seed: float | None = None,
    ) -> Value: ...
    def Neg(self, x: ValueLike, /) -> Value: ...
    def NegativeLogLikelihoodLoss(
        self,
        input: ValueLike,
        target: ValueLike,
        weight: ValueLike | None = None,
        /,
        *,
        ignore_index: int | None = None,
        reduction: str | None = "mean",
    ) -> Value: ...
    def NonMaxSuppression(
        self,
        boxes: ValueLike,
        scores: ValueLike,
        max_output_boxes_per_class: ValueLike | None = None,
        iou_threshold: ValueLike | None = None,
        score_threshold: ValueLike | None = None,
        /,
        *,
        center_point_box: int | None = 0,
    ) -> Value: ...
    def NonZero(self, x: ValueLike, /) -> Value: ...
    def Not(self, x: ValueLike, /) -> Value: ...
    def OneHot(self, indices: ValueLike, depth: ValueLike, values: ValueLike, /, *, axis: int | None = -1) -> Value: ...
    def Optional(self, input: ValueLike | None = None, /) -> Value: ...
    def OptionalGetElement(self, input: ValueLike, /) -> Value: ...
    def OptionalHasElement(self, input: ValueLike | None = None, /) -> Value: ...
    def Or(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def PRelu(self, x: ValueLike, slope: ValueLike, /) -> Value: ...
    def Pad(
        self,
        data: ValueLike,
        pads: ValueLike,
        constant_value: ValueLike | None = None,
        axes: ValueLike | None = None,
        /,
        *,
        mode: str | None = "constant",
    ) -> Value: ...
    def Pow(self, x: ValueLike, y: ValueLike, /) -> Value: ...
    def QLinearConv(
        self,
        x: ValueLike,
        x_scale: ValueLike,
        x_zero_point: ValueLike,
        w: ValueLike,
        w_scale: ValueLike,
        w_zero_point: ValueLike,
        y_scale: ValueLike,
        y_zero_point: ValueLike,
        b: ValueLike | None = None,
        /,
        *,
        auto_pad: str | None = "NOTSET",
        dilations: Sequence[int] | None = None,
        group: int | None = 1,
        kernel_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
    ) -> Value: ...
    def QLinearMatMul(
        self,
        a: ValueLike,
        a_scale: ValueLike,
        a_zero_point: ValueLike,
        b: ValueLike,
        b_scale: ValueLike,
        b_zero_point: ValueLike,
        y_scale: ValueLike,
        y_zero_point: ValueLike,
        /,
    ) -> Value: ...
    def QuantizeLinear(
        self,
        x: ValueLike,
        y_scale: ValueLike,
        y_zero_point: ValueLike | None = None,
        /,
        *,
        axis: int | None = 1,
        block_size: int | None = 0,
        output_dtype: int | str | None = 0,
        precision: int | None = 0,
        saturate: int | None = 1,
    ) -> Value: ...
    def RMSNormalization(
        self,
        x: ValueLike,
        scale: ValueLike,
        /,
        *,
        axis: int | None = -1,
        epsilon: float | None = 1e-05,
        stash_type: int | str | None = 1,
    ) -> Value: ...
    @overload
    def RNN(
        self,
        x: ValueLike,
        w: ValueLike,
        r: ValueLike,
        b: ValueLike | None = None,
        sequence_lens: ValueLike | None = None,
        initial_h: ValueLike | None = None,
        /,
        *,
        outputs: int,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = "forward",
        hidden_size: int | None = None,
        layout: int | None = 0,
    ) -> tuple[Value, ...]: ...
    @overload
    def RNN(
        self,
        x: ValueLike,
        w: ValueLike,
        r: ValueLike,
        b: ValueLike | None = None,
        sequence_lens: ValueLike | None = None,
        initial_h: ValueLike | None = None,
        /,
        *,
        outputs: None = None,
        activation_alpha: Sequence[float] | None = None,
        activation_beta: Sequence[float] | None = None,
        activations: Sequence[str] | None = None,
        clip: float | None = None,
        direction: str | None = "forward",
        hidden_size: int | None = None,
        layout: int | None = 0,
    ) -> Value: ...
    def RandomNormal(
        self,
        *,
        shape: Sequence[int],
        dtype: int | str | None = 1,
        mean: float | None = 0.0,
        scale: float | None = 1.0,
        seed: float | None = None,
    ) -> Value: ...
    def RandomNormalLike(
        self,
        input: ValueLike,
        /,
        *,
        dtype: int | str | None = None,
        mean: float | None = 0.0,
        scale: float | None = 1.0,
        seed: float | None = None,
    ) -> Value: ...
    def RandomUniform(
        self,
        *,
        shape: Sequence[int],
        dtype: int | str | None = 1,
        high: float | None = 1.0,
        low: float | None = 0.0,
        seed: float | None = None,
    ) -> Value: ...
    def RandomUniformLike(
        self,
        input: ValueLike,
        /,
        *,
        dtype: int | str | None = None,
        high: float | None = 1.0,
        low: float | None = 0.0,
        seed: float | None = None,
    ) -> Value: ...
    def Range(self, start: ValueLike, limit: ValueLike, delta: ValueLike, /) -> Value: ...
    def Reciprocal(self, x: ValueLike, /) -> Value: ...
    def ReduceL1(
        self,
        data: ValueLike,
        axes: ValueLike | None = None,
        /,
        *,
        keepdims: int | None = 1,
        noop_with_empty_axes: int | None = 0,
    ) -> Value: ...
    def ReduceL2(
        self,
        data: ValueLike,
        axes: ValueLike | None = None,
        /,
        *,
        keepdims: int | None = 1,
        noop_with_empty_axes: int | None = 0,
    ) -> Value: ...
    def ReduceLogSum(
        self,
        data: ValueLike,
        axes: ValueLike | None = None,
        /,
        *,
        keepdims: int | None = 1,
        noop_with_empty_axes: int | None = 0,
    ) -> Value: ...
    def ReduceLogSumExp(
        self,
        data: ValueLike,
        axes: ValueLike | None = None,
        /,
        *,
        keepdims: int | None = 1,
        noop_with_empty_axes: int | None = 0,
    ) -> Value: ...
    def ReduceMax(
        self,
        data: ValueLike,
        axes: ValueLike | None = None,
        /,
        *,
        keepdims: int | None = 1,
        noop_with_empty_axes: int | None = 0,
    ) -> Value: ...
    def ReduceMean(
        self,
        data: ValueLike,
        axes: ValueLike | None = None,
        /,
        *,
        keepdims: int | None = 1,
        noop_with_empty_axes: int | None = 0,
    ) -> Value: ...
    def ReduceMin(
        self,
        data: ValueLike,
        axes: ValueLike | None = None,
        /,
        *,
        keepdims: int | None = 1,
        noop_with_empty_axes: int | None = 0,
    ) -> Value: ...
    def ReduceProd(
        self,
        data: ValueLike,
        axes: ValueLike | None = None,
        /,
        *,
        keepdims: int | None = 1,
        noop_with_empty_axes: int | None = 0,
    ) -> Value: ...
    def ReduceSum(
        self,
        data: ValueLike,
        axes: ValueLike | None = None,
        /,
        *,
        keepdims: int | None = 1,
        noop_with_empty_axes: int | None = 0,
    ) -> Value: ...
    def ReduceSumSquare(
        self,
        data: ValueLike,
        axes: ValueLike | None = None,
        /,
        *,
        keepdims: int | None = 1,
        noop_with_empty_axes: int | None = 0,
    ) -> Value: ...
    def RegexFullMatch(self, x: ValueLike, /, *, pattern: str | None = None) -> Value: ...
    def Relu(self, x: ValueLike, /) -> Value: ...
    def Reshape(self, data: ValueLike, shape: ValueLike, /, *, allowzero: int | None = 0) -> Value: ...
    def Resize(
        self,
        x: ValueLike,
        roi: ValueLike | None = None,
        scales: ValueLike | None = None,
        sizes: ValueLike | None = None,
        /,
        *,
        antialias: int | None = 0,
        axes: Sequence[int] | None = None,
        coordinate_transformation_mode: str | None = "half_pixel",
        cubic_coeff_a: float | None = -0.75,
        exclude_outside: int | None = 0,
        extrapolation_value: float | None = 0.0,
        keep_aspect_ratio_policy: str | None = "stretch",
        mode: str | None = "nearest",
        nearest_mode: str | None = "round_prefer_floor",
    ) -> Value: ...
    def ReverseSequence(
        self, input: ValueLike, sequence_lens: ValueLike, /, *, batch_axis: int | None = 1, time_axis: int | None = 0
    ) -> Value: ...
    def RoiAlign(
        self,
        x: ValueLike,
        rois: ValueLike,
        batch_indices: ValueLike,
        /,
        *,
        coordinate_transformation_mode: str | None = "half_pixel",
        mode: str | None = "avg",
        output_height: int | None = 1,
        output_width: int | None = 1,
        sampling_ratio: int | None = 0,
        spatial_scale: float | None = 1.0,
    ) -> Value: ...
    def RotaryEmbedding(
        self,
        x: ValueLike,
        cos_cache: ValueLike,
        sin_cache: ValueLike,
        position_ids: ValueLike | None = None,
        /,
        *,
        interleaved: int | None = 0,
        num_heads: int | None = None,
        rotary_embedding_dim: int | None = 0,
    ) -> Value: ...
    def Round(self, x: ValueLike, /) -> Value: ...
    def STFT(
        self,
        signal: ValueLike,
        frame_step: ValueLike,
        window: ValueLike | None = None,
        frame_length: ValueLike | None = None,
        /,
        *,
        onesided: int | None = 1,
    ) -> Value: ...
    @overload
    def Scan(
        self,
        *initial_state_and_scan_inputs: ValueLike | None,
        outputs: int,
        body: Graph,
        num_scan_inputs: int,
        scan_input_axes: Sequence[int] | None = None,
        scan_input_directions: Sequence[int] | None = None,
        scan_output_axes: Sequence[int] | None = None,
        scan_output_directions: Sequence[int] | None = None,
    ) -> tuple[Value, ...]: ...
    @overload
    def Scan(
        self,
        *initial_state_and_scan_inputs: ValueLike | None,
        outputs: None = None,
        body: Graph,
        num_scan_inputs: int,
        scan_input_axes: Sequence[int] | None = None,
        scan_input_directions: Sequence[int] | None = None,
        scan_output_axes: Sequence[int] | None = None,
        scan_output_directions: Sequence[int] | None = None,
    ) -> Value: ...
    def ScatterElements(
        self,
        data: ValueLike,
        indices: ValueLike,
        updates: ValueLike,
        /,
        *,
        axis: int | None = 0,
        reduction: str | None = "none",
    ) -> Value: ...
    def ScatterND(
        self, data: ValueLike, indices: ValueLike, updates: ValueLike, /, *, reduction: str | None = "none"
    ) -> Value: ...
    def Selu(self, x: ValueLike, /, *, alpha: float | None = 1.6732632, gamma: float | None = 1.050701) -> Value: ...
    def SequenceAt(self, input_sequence: ValueLike, position: ValueLike, /) -> Value: ...
    def SequenceConstruct(self, *inputs: ValueLike | None) -> Value: ...
    def SequenceEmpty(self, *, dtype: int | str | None = None) -> Value: ...
    def SequenceErase(self, input_sequence: ValueLike, position: ValueLike | None = None, /) -> Value: ...
    def SequenceInsert(
        self, input_sequence: ValueLike, tensor: ValueLike, position: ValueLike | None = None, /
    ) -> Value: ...
    def SequenceLength(self, input_sequence: ValueLike, /) -> Value: ...
    @overload
    def SequenceMap(
        self, input_sequence: ValueLike, /, *additional_inputs: ValueLike | None, outputs: int, body: Graph
    ) -> tuple[Value, ...]: ...
    @overload
    def SequenceMap(
        self, input_sequence: ValueLike, /, *additional_inputs: ValueLike | None, outputs: None = None, body: Graph
    ) -> Value: ...
    def Shape(self, data: ValueLike, /, *, end: int | None = None, start: int | None = 0) -> Value: ...
    def Shrink(self, input: ValueLike, /, *, bias: float | None = 0.0, lambd: float | None = 0.5) -> Value: ...
    def Sigmoid(self, x: ValueLike, /) -> Value: ...
    def Sign(self, input: ValueLike, /) -> Value: ...
    def Sin(self, input: ValueLike, /) -> Value: ...
    def Sinh(self, input: ValueLike, /) -> Value: ...
    def Size(self, data: ValueLike, /) -> Value: ...
    def Slice(
        self,
        data: ValueLike,
        starts: ValueLike,
        ends: ValueLike,
        axes: ValueLike | None = None,
        steps: ValueLike | None = None,
        /,
    ) -> Value: ...
    def Softmax(self, input: ValueLike, /, *, axis: int | None = -1) -> Value: ...
    @overload
    def SoftmaxCrossEntropyLoss(
        self,
        scores: ValueLike,
        labels: ValueLike,
        weights: ValueLike | None = None,
        /,
        *,
        outputs: int,
        ignore_index: int | None = None,
        reduction: str | None = "mean",
    ) -> tuple[Value, ...]: ...
    @overload
    def SoftmaxCrossEntropyLoss(
        self,
        scores: ValueLike,
        labels: ValueLike,
        weights: ValueLike | None = None,
        /,
        *,
        outputs: None = None,
        ignore_index: int | None = None,
        reduction: str | None = "mean",
    ) -> Value: ...
    def Softplus(self, x: ValueLike, /) -> Value: ...
    def Softsign(self, input: ValueLike, /) -> Value: ...
    def SpaceToDepth(self, input: ValueLike, /, *, blocksize: int) -> Value: ...
    @overload
    def Split(
        self,
        input: ValueLike,
        split: ValueLike | None = None,
        /,
        *,
        outputs: int,
        axis: int | None = 0,
        num_outputs: int | None = None,
    ) -> tuple[Value, ...]: ...
    @overload
    def Split(
        self,
        input: ValueLike,
        split: ValueLike | None = None,
        /,
        *,
        outputs: None = None,
        axis: int | None = 0,
        num_outputs: int | None = None,
    ) -> Value: ...
    def SplitToSequence(
        self, input: ValueLike, split: ValueLike | None = None, /, *, axis: int | None = 0, keepdims: int | None = 1
    ) -> Value: ...
    def Sqrt(self, x: ValueLike, /) -> Value: ...
    def Squeeze(self, data: ValueLike, axes: ValueLike | None = None, /) -> Value: ...
    def StringConcat(self, x: ValueLike, y: ValueLike, /) -> Value: ...
    def StringNormalizer(
        self,
        x: ValueLike,
        /,
        *,
        case_change_action: str | None = "NONE",
        is_case_sensitive: int | None = 0,
        locale: str | None = None,
        stopwords: Sequence[str] | None = None,
    ) -> Value: ...
    def StringSplit(
        self, x: ValueLike, /, *, outputs: int = 2, delimiter: str | None = None, maxsplit: int | None = None
    ) -> tuple[Value, Value]: ...
    def Sub(self, a: ValueLike, b: ValueLike, /) -> Value: ...
    def Sum(self, *data_0: ValueLike | None) -> Value: ...
    def Swish(self, x: ValueLike, /, *, alpha: float | None = 1.0) -> Value: ...
    def Tan(self, input: ValueLike, /) -> Value: ...
    def Tanh(self, input: ValueLike, /) -> Value: ...
    def TensorScatter(
        self,
        past_cache: ValueLike,
        update: ValueLike,
        write_indices: ValueLike | None = None,
        /,
        *,
        axis: int | None = -2,
        mode: str | None = "linear",
    ) -> Value: ...
    def TfIdfVectorizer(
        self,
        x: ValueLike,
        /,
        *,
        max_gram_length: int,
        max_skip_count: int,
        min_gram_length: int,
        mode: str,
        ngram_counts: Sequence[int],
        ngram_indexes: Sequence[int],
        pool_int64s: Sequence[int] | None = None,
        pool_strings: Sequence[str] | None = None,
        weights: Sequence[float] | None = None,
    ) -> Value: ...
    def ThresholdedRelu(self, x: ValueLike, /, *, alpha: float | None = 1.0) -> Value: ...
    def Tile(self, input: ValueLike, repeats: ValueLike, /) -> Value: ...
    def TopK(
        self,
        x: ValueLike,
        k: ValueLike,
        /,
        *,
        outputs: int = 2,
        axis: int | None = -1,
        largest: int | None = 1,
        sorted: int | None = 1,
    ) -> tuple[Value, Value]: ...
    def Transpose(self, data: ValueLike, /, *, perm: Sequence[int] | None = None) -> Value: ...
    def Trilu(self, input: ValueLike, k: ValueLike | None = None, /, *, upper: int | None = 1) -> Value: ...
    @overload
    def Unique(
        self, x: ValueLike, /, *, outputs: int, axis: int | None = None, sorted: int | None = 1
    ) -> tuple[Value, ...]: ...
    @overload
    def Unique(
        self, x: ValueLike, /, *, outputs: None = None, axis: int | None = None, sorted: int | None = 1
    ) -> Value: ...
    def Unsqueeze(self, data: ValueLike, axes: ValueLike, /) -> Value: ...
    def Where(self, condition: ValueLike, x: ValueLike, y: ValueLike, /) -> Value: ...
    def Xor(self, a: ValueLike, b: ValueLike, /) -> Value: ...
