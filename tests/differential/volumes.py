"""Rows, elements, bytes and FLOPs of every operation of one layer, per rank."""
import math
from fractions import Fraction

BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
GEMMS = {"gpt": 2, "mixtral": 3, "gpt-tanh": 2, "mixtral-fp8": 3}


class Layer:
    """A layer's shape and its groups, as one question asks them."""

    def __init__(self, **keys):
        self.batch, self.seq, self.model_dim, self.hidden = 4, 1024, 1024, 4096
        self.heads, self.kv_heads, self.head_dim, self.shared_hidden = 16, None, 0, 0
        self.window = 0
        self.parts, self.part = 1, 0  # of samples; the one of these passes
        self.q_lora_rank = self.kv_lora_rank = 0  # 0: queries are not compressed; attention is not latent
        self.qk_nope_head_dim = self.qk_rope_head_dim = self.v_head_dim = 0
        self.experts, self.top_k, self.capacity_factor = 8, 2, 1.2
        self.rounding, self.ffn, self.dtype = "ragged", "gpt", "float32"
        self.dp = self.cp = self.mp = self.ep = self.esp = self.pp = self.edp = 1
        self.cp_exchange = "allgather"
        self.placement, self.recompute, self.node_limit = "esp-inside", "none", 0
        self.gate, self.norm, self.zero = "gshard", None, 0  # norm: the experts' own
        for key, value in keys.items():
            assert hasattr(self, key), key
            setattr(self, key, value)
        if not self.kv_heads:
            self.kv_heads = self.heads

    @property
    def head_width(self):
        """Columns of one head; 0 asks for the model's columns dealt to all heads."""
        if self.kv_lora_rank:
            return self.qk_nope_head_dim + self.qk_rope_head_dim
        return self.head_dim or self.model_dim // self.heads

    @property
    def value_width(self):
        return self.v_head_dim or self.head_width

    @property
    def element(self):
        return BYTES[self.dtype]

    @property
    def tokens(self):
        """B L / N_CP, of one MP group; of samples in parts, of one part."""
        return self.batch * self.seq // self.cp // self.parts

    @property
    def blocks(self):
        """Blocks of keys and values that go round a ring; 0 without a ring."""
        return self.cp if self.cp > 1 and self.cp_exchange == "ring" else 0

    @property
    def replicas(self):
        """Ranks that hold a dense weight alike."""
        return self.dp * self.cp

    @property
    def local_experts(self):
        return self.experts // self.ep

    @property
    def gemms(self):
        return GEMMS[self.ffn]

    @property
    def forwards(self):
        """How often training runs the forward of a layer and micro-batch: a backward may begin with it."""
        return 2 if self.recompute == "full" else 1


def rows_of(layer, r_forward, r_backward, mp_split=None):
    """T_rank: rows an expert takes from a rank whose tokens are 1 / mp_split of its MP group's."""
    split = layer.mp if mp_split is None else mp_split
    factor = 1 if layer.capacity_factor == "none" else Fraction(repr(layer.capacity_factor))
    exact = layer.top_k * factor * layer.tokens / (split * layer.experts)
    if layer.rounding == "exact":
        return exact
    rows = math.ceil(exact)
    if layer.rounding == "tutel" and layer.capacity_factor != "none":  # k int(f ceil(tokens / E))
        rows = max(1, layer.top_k * math.floor(factor * math.ceil(Fraction(layer.tokens, split * layer.experts))))
    if layer.rounding == "deepspeed":  # at least 4
        rows = max(rows, 4)
    if layer.rounding == "lcm":
        multiple = math.lcm(r_forward, r_backward)
        rows = -(-rows // multiple) * multiple
    return rows


def chunk_rows(rows, degree, rounding):
    """Rows an expert has in each of `degree` chunks: floor or ceil(T_rank / r), unrounded if so asked."""
    if rounding == "exact":
        return [rows / degree] * degree
    least, more = divmod(rows, degree)
    return [least + (1 if c < more else 0) for c in range(degree)]
