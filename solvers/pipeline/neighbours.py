"""Templates that differ from a given one by one change."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from arachne_opt.costs.pipeline.base import Ints

Template = tuple[int, ...]


def neighbours(
    template: Template, usage: Ints, limits: Ints, most_stages: int
) -> Iterator[Template]:
    """Every template one change away that fits the devices.

    Changes: another option for a stage or for all stages of an option, two stages in place of one,
    a stage more or less (with or without another option for one of the rest), two stages
    exchanged, a stage moved.
    """
    options = range(len(usage))
    used = usage[list(template)].sum(axis=0)
    fits = [(used - usage[old] + usage <= limits).all(axis=1).nonzero()[0] for old in options]
    yield from _replaced(template, fits)
    yield from _all_replaced(template, usage, limits)
    yield from _reordered(template)
    if len(template) < most_stages:
        yield from _split(template, usage, limits)
        free = (used + usage <= limits).all(axis=1).nonzero()[0]
        yield from _inserted(template, free.tolist())
    if len(template) > 1:
        for i in range(len(template)):
            shorter = template[:i] + template[i + 1 :]
            yield shorter
            yield from _replaced_after_removal(shorter, template[i], usage, limits)
            # The freed devices for another stage elsewhere.
            yield from _inserted(shorter, fits[template[i]].tolist())


def _replaced(template: Template, fits: list[Ints]) -> Iterator[Template]:
    for i, old in enumerate(template):
        for new in fits[old].tolist():
            if new != old:
                yield (*template[:i], new, *template[i + 1 :])


def _all_replaced(template: Template, usage: Ints, limits: Ints) -> Iterator[Template]:
    used = usage[list(template)].sum(axis=0)
    for old in dict.fromkeys(template):
        after = used + template.count(old) * (usage - usage[old])
        for new in (after <= limits).all(axis=1).nonzero()[0].tolist():
            yield tuple(new if o == old else o for o in template)


def _split(template: Template, usage: Ints, limits: Ints) -> Iterator[Template]:
    """Two stages on the types of one."""
    used = usage[list(template)].sum(axis=0)
    for i, old in enumerate(template):
        if i > 0 and template[i - 1] == old:
            continue  # the same as splitting the stage before
        alike = ((usage > 0) <= (usage[old] > 0)).all(axis=1).nonzero()[0]
        after = used - usage[old] + usage[alike][:, None] + usage[alike][None]
        for n, m in np.argwhere((after <= limits).all(axis=2)).tolist():
            yield (*template[:i], int(alike[n]), int(alike[m]), *template[i + 1 :])


def _replaced_after_removal(
    shorter: Template, removed: int, usage: Ints, limits: Ints
) -> Iterator[Template]:
    """The freed devices for one of the other stages, unless the change fits without them."""
    used = usage[list(shorter)].sum(axis=0)
    for i, old in enumerate(shorter):
        after = used - usage[old] + usage
        new_only = (after <= limits).all(axis=1) & ~(after + usage[removed] <= limits).all(axis=1)
        for new in new_only.nonzero()[0].tolist():
            yield (*shorter[:i], new, *shorter[i + 1 :])


def _inserted(template: Template, options: list[int]) -> Iterator[Template]:
    for i in range(len(template) + 1):
        for new in options:
            yield (*template[:i], new, *template[i:])


def _reordered(template: Template) -> Iterator[Template]:
    for i in range(len(template)):
        rest = template[:i] + template[i + 1 :]
        for j in range(len(template)):
            if j != i:
                yield (*rest[:j], template[i], *rest[j:])
        for j in range(i + 1, len(template)):
            if template[j] != template[i]:
                swapped = list(template)
                swapped[i], swapped[j] = swapped[j], swapped[i]
                yield tuple(swapped)
