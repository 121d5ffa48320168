"""Which random problems examples are drawn from: one world to learn in, another to be tested in.

The two share no device type, no size of a node and no number of nodes, so that what is tested was
never seen.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What random clusters are made of.

    Args:
        types: device types by the names of their data sheets.
        node_sizes: devices of a node.
        node_counts: nodes of a type.
        video_types: device types of clusters for cascades, whose nodes have eight devices.
        video_nodes: nodes of such a cluster.
        video_models: models whose cascades are drawn.
    """

    name: str
    types: tuple[str, ...]
    node_sizes: tuple[int, ...]
    node_counts: tuple[int, ...]
    video_types: tuple[str, ...]
    video_nodes: tuple[int, ...]
    video_models: tuple[str, ...]


LEARNED = World(
    name="learned",
    types=(
        *("V100-16", "V100-32", "T4", "L4", "A10G", "A100-40", "H100-80", "H200-141"),
        *("RTX-3090", "MI300X"),
    ),
    node_sizes=(1, 2, 4, 8),
    node_counts=(1, 2, 3, 4, 6, 8),
    video_types=("A100-80", "H800", "H200-141", "MI300X"),
    video_nodes=(2, 3, 5, 6, 8, 10, 12, 13),
    video_models=("wan2.1-14b", "wan2.1-1.3b", "cogvideox-5b", "cogvideox-2b"),
)

HELD_OUT = World(
    name="held-out",
    types=("A100-80", "A800", "H800", "GH-96", "B200", "L40S", "RTX-4090", "Titan-RTX"),
    node_sizes=(3, 5, 6, 10),
    node_counts=(5, 7, 9),
    video_types=("H100-80", "A800"),
    video_nodes=(4, 7, 9, 11, 14, 16),
    video_models=("hunyuanvideo-13b", "wan2.1-i2v-14b"),
)

WORLDS = {world.name: world for world in (LEARNED, HELD_OUT)}
