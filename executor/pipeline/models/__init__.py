"""Decoders as rows in plain torch, which any split into stages, tp and ep can run.

- ``spec``: ``DecoderSpec``; ``configs``: specs of architectures and Hugging Face configurations;
  ``parameters``: ``row_parameters(spec, row)``, how tp and ep cut each parameter, and
  ``tied_parameters(spec)``. They load no torch.
- ``rows``: ``build_row(spec, row, seed=, device=, dtype=)``, ``token_loss(logits, targets)``, the
  sum over tokens.
- ``blocks`` and ``experts`` have the *seams*: ``enter`` and ``leave`` of ``Attention``,
  ``FeedForward`` and ``Experts``, ``leave`` and ``first`` of ``WordTable``, ``enter`` and
  ``gather`` of ``HeadRow``, ``exchange`` of ``SparseFeedForward``. They do nothing; whoever puts
  parts of the parameters into a row puts its group's sums in their place.
- ``checkpoints``: rows from Hugging Face checkpoints, and back.
"""
