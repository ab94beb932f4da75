"""MoNTA's Tables 3 and 4 (spec section 9), docs/metrics.md "memory": bytes of a rank of one layer."""
import questions
import volumes
from flows import projections


def weights(layer):
    """Dense and expert weights of the rank that has most: attention, gate and shared expert; its experts' shards."""
    dense = projections(layer) + layer.gemms * layer.model_dim * layer.shared_hidden / layer.mp
    norms = NORMS[layer.ffn] * 2 * layer.model_dim
    gate = layer.model_dim * layer.experts * 2  # GShard's: logits and noise
    experts = layer.gemms * layer.model_dim * layer.hidden / layer.esp * layer.local_experts
    return dense, norms + gate, experts


NORMS = {"gpt": 2, "mixtral": 1}  # layer norms have a shift, RMS norms have none
