"""Which ranks are a group, and which network connects them.

rank = ((pp N_DP + dp) N_CP + cp) N_MP + mp; inside a stage also (edp N_EP + ep) N_ESP + esp, or, with EP inside,
(edp N_ESP + esp) N_EP + ep. A group that spans nodes is on the inter network.
Dense weights are alike on the ranks of DP and CP: "dp" is both together.
"""
import collections


def strides(layer):
    """kind -> (size, stride)."""
    ep, esp = (layer.esp, 1) if layer.placement == "esp-inside" else (1, layer.ep)
    return {"mp": (layer.mp, 1), "dp": (layer.replicas, layer.mp),
            "cp": (layer.cp, layer.mp), "pp": (layer.pp, layer.replicas * layer.mp),
            "ep": (layer.ep, ep), "esp": (layer.esp, esp), "edp": (layer.edp, layer.ep * layer.esp),
            "ep-esp": (layer.ep * layer.esp, 1), "mp-dp": (layer.mp * layer.replicas, 1)}


def of(layer, ranks_per_node):
    """kind -> (network, ranks)."""
    return {kind: (network(layer, kind, ranks_per_node), size) for kind, (size, _) in strides(layer).items()}


def spread(layer, kind, ranks_per_node):
    """The smallest number of ranks that any group of the kind has on a node."""
    return min(min(collections.Counter(rank // ranks_per_node for rank in group).values())
               for group in members(layer, kind))


def spreads(layer, ranks_per_node):
    """kind -> spread."""
    return {kind: spread(layer, kind, ranks_per_node) for kind in strides(layer)}


def members(layer, kind):
    """All groups of a kind."""
    size, stride = strides(layer)[kind]
    total = layer.replicas * layer.mp * layer.pp
    return [[first + stride * i for i in range(size)] for first in range(total) if first // stride % size == 0]


def network(layer, kind, ranks_per_node):
    """none, intra, or inter if any group of the kind spans nodes."""
    if strides(layer)[kind][0] == 1:
        return "none"
    spans = any(len({rank // ranks_per_node for rank in group}) > 1 for group in members(layer, kind))
    return "inter" if spans else "intra"
