"""Real processes joined by gloo, forked from a clean server that has torch loaded."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

PATIENCE_S = 120

# Loaded once by the server, so that a rank starts in a tenth of a second.
LOADED = [
    "torch.distributed",
    "diffusers.models.autoencoders.autoencoder_kl_wan",
    "diffusers.models.autoencoders.autoencoder_kl_cogvideox",
    "diffusers.models.autoencoders.autoencoder_kl_hunyuan_video",
    "diffusers.models.transformers.transformer_wan",
    "diffusers.models.transformers.cogvideox_transformer_3d",
    "diffusers.models.transformers.transformer_hunyuan_video",
]


def run_ranks(function: Callable[..., Any], world_size: int, *arguments: Any) -> list[Any]:
    """What ``function(rank, *arguments)`` gives on each rank; raises what the first rank raised."""
    from torch.distributed import TCPStore

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Open from here to the end: a free port that is looked up may be taken before it is used.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipes, processes = [], []
    for rank in range(world_size):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_rank,
            args=(theirs, function, rank, world_size, store.port, arguments),
            daemon=True,
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        answers = [_receive(pipe, rank) for rank, pipe in enumerate(pipes)]
    finally:
        for process in processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
        for pipe in pipes:
            pipe.close()
    failed = [text for ok, text in answers if not ok]
    assert not failed, "\n".join(failed)
    return [value for _, value in answers]


def _receive(pipe: Any, rank: int) -> tuple[bool, Any]:
    if not pipe.poll(PATIENCE_S):
        return False, f"rank {rank} gave no answer in {PATIENCE_S} s"
    with suppress(EOFError):
        return pipe.recv()
    return False, f"rank {rank} ended without an answer"


def _rank(pipe: Any, function: Any, rank: int, world_size: int, port: int, arguments: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            store=dist.TCPStore("127.0.0.1", port),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=60),
        )
        answer = True, function(rank, *arguments)
        dist.barrier()
        dist.destroy_process_group()
    except Exception:
        answer = False, f"rank {rank}: {traceback.format_exc()}"
    pipe.send(answer)
    pipe.close()
