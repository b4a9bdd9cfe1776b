"""Regions of an ATen graph: a heavy anchor, or several of one kind that share an operand, with the
pointwise chains before and after, or with what reduces an operand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import fx

from cudaforge_backend._native import _C
from cudaforge_backend.reasons import Reason

from .frozen import is_frozen
from .fx_signature import Unsupported, is_getitem, node_values, op_name, signature
from .rules import Rules

MAX_MEMBERS = 48  # the signature's limit is 64 nodes
MAX_OFFERS = 5  # regions around one anchor; if all are refused, PyTorch runs it
MAX_SIBLINGS = 4  # heavy anchors of a region


@dataclass(frozen=True)
class Region:
    """A convex set of nodes for one kernel."""

    members: tuple[fx.Node, ...]  # topological order, getitems among them
    inputs: tuple[fx.Node, ...]  # in the signature's order
    outputs: tuple[tuple[fx.Node, int], ...]  # (node, which of its outputs)
    device: torch.device
    signature: _C.Signature
    by_agents: bool = False  # no generator makes its kernel: an agent must write it

    @property
    def key(self) -> str:
        """The signature's."""
        return self.signature.key


# Whether to take a region. The second argument: the largest region that it is a part of, of those
# that were refused before.
Take = Callable[[Region, Region | None], bool]


def take_all(region: Region, within: Region | None) -> bool:
    """Takes the largest region around every anchor."""
    return True


def find_regions(
    graph: fx.Graph, rules: Rules, take: Take = take_all
) -> tuple[list[Region], Counter[Reason]]:
    """The regions of `graph`, disjoint and without cycles between them, and why anchors have none.

    If `take` refuses a region, smaller ones around the same anchor are offered, MAX_OFFERS in all.
    Depends only on the graph's structure and the answers of `take`: equal graphs have equal regions
    in every process."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():  # the C++ part makes real tensors of literals
        return _Partition(graph, rules, take).run()


class _Partition:
    def __init__(self, graph: fx.Graph, rules: Rules, take: Take) -> None:
        self.rules = rules
        self.take = take
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.nodes = list(self.order)
        self.region_of: dict[fx.Node, int] = {}
        self.regions: list[Region] = []
        self.left: Counter[Reason] = Counter()
        # Bit set of the nodes that a node depends on, itself included.
        self.before: dict[fx.Node, int] = {}
        self._update_before()

    def run(self) -> tuple[list[Region], Counter[Reason]]:
        # Heavy ops first: their regions include the pointwise chains around them.
        for anchors in (self.rules.heavy, self.rules.anchors):
            for node in self.nodes:
                if op_name(node) in anchors and node not in self.region_of:
                    self._take(node)
        return self.regions, self.left

    def _take(self, anchor: fx.Node) -> None:
        try:
            node_values(anchor)
        except Unsupported as error:
            self.left[error.reason] += 1
            return
        refusal: Reason | None = None
        offered: set[frozenset[fx.Node]] = set()
        unforged: set[frozenset[fx.Node]] = set()
        refused: list[Region] = []
        for attempts in self._candidates(anchor):
            for members in attempts:
                if members in offered:
                    break
                made = self._make(members) if members not in unforged else None
                if not isinstance(made, Region):
                    refusal = made or refusal
                    continue
                whole = (region for region in refused if members <= set(region.members))
                if self.take(made, next(whole, None)):
                    self._add(made)
                    return
                if made.by_agents and not self.rules.agents:  # a smaller one may have a generator
                    unforged.add(members)
                    continue
                offered.add(members)
                refused.append(made)
                break
            if len(offered) == MAX_OFFERS:
                return
        if not offered and not unforged:
            self.left[refusal or Reason.NO_KERNEL_GENERATOR] += 1

    def _add(self, region: Region) -> None:
        self.region_of.update(dict.fromkeys(region.members, len(self.regions)))
        self.regions.append(region)
        self._update_before()

    def _candidates(self, anchor: fx.Node) -> Iterator[Iterator[frozenset[fx.Node]]]:
        """Groups of attempts, in order; each group offers its first valid region. The groups: with
        other anchors, with this anchor only, the anchor alone, and with one of its chains."""
        alone = self._with_getitems({anchor})
        if op_name(anchor) not in self.rules.heavy:
            yield self._largest(alone, several=True)
        else:
            for operand in anchor.all_input_nodes:
                if siblings := self._siblings(anchor, operand):
                    yield self._with_siblings(siblings)
            after = self._grow_after(alone, several=False)
            for reduction in self._reductions(anchor):
                yield iter((after | {reduction}, alone | {reduction}))
        yield self._largest(alone, several=False)
        yield iter((alone,))
        yield iter((self._grow_before(alone, several=False),))
        yield iter((self._grow_after(alone, several=False),))

    def _largest(self, alone: frozenset[fx.Node], several: bool) -> Iterator[frozenset[fx.Node]]:
        """Both chains, then the one after, then parts of it, largest first."""
        after = self._grow_after(alone, several)
        yield self._grow_before(after, several)
        yield after
        if several:
            return
        yield self._grow_before(alone, several=False)
        for limit in (4, 2, 1):  # parts of a chain that is too long
            part = sorted(after - alone, key=self.order.__getitem__)[:limit]
            yield self._grow_before(alone | set(part), several=False)
            yield alone | set(part)
        yield alone

    def _siblings(self, anchor: fx.Node, operand: fx.Node) -> frozenset[fx.Node]:
        """The anchor and others of its kind and sizes with this operand: query, key and value of
        one input, gate and up projection. Empty if there are none."""

        def sizes(node: fx.Node) -> list[torch.Size | None]:
            values = (n.meta.get("val") for n in (node, *node.all_input_nodes))
            return [v.shape if isinstance(v, torch.Tensor) else None for v in values]

        found = [anchor]
        for node in sorted(set(operand.users) - {anchor}, key=self.order.__getitem__):
            if (
                op_name(node) == op_name(anchor)
                and node not in self.region_of
                and sizes(node) == sizes(anchor)
                and not self.before[node] & self._mask(found)
                and not any(self.before[other] >> self.order[node] & 1 for other in found)
            ):
                found.append(node)
        return frozenset(found[:MAX_SIBLINGS] if len(found) > 1 else [])

    def _with_siblings(self, siblings: frozenset[fx.Node]) -> Iterator[frozenset[fx.Node]]:
        after = self._grow_after(siblings, several=False)
        yield self._grow_before(after, several=False)
        yield after
        masks = [self._mask([node]) for node in siblings]
        if all(sum(bool(self.before[n] & m) for m in masks) < 2 for n in after):
            yield siblings  # else one of them with what computes with several has less to store

    def _reductions(self, anchor: fx.Node) -> list[fx.Node]:
        """What reduces an operand of the anchor and reads nothing else: a linear layer's gradient
        of its bias is a sum of an operand of that of its weight."""
        names = self.rules.anchors - self.rules.heavy
        found = {
            user
            for operand in anchor.all_input_nodes
            for user in operand.users
            if op_name(user) in names
            and user.all_input_nodes == [operand]
            and user not in self.region_of
            and isinstance(user.meta.get("val"), torch.Tensor)
        }
        return sorted(found, key=self.order.__getitem__)

    def _may_join(self, node: fx.Node, several: bool) -> bool:
        name = op_name(node)
        if node in self.region_of or not (
            name in self.rules.pointwise or (several and name in self.rules.anchors)
        ):
            return False
        try:
            node_values(node)
        except Unsupported:
            return False
        return True

    def _with_getitems(self, members: Iterable[fx.Node]) -> frozenset[fx.Node]:
        found = set(members)
        for node in list(found):
            found.update(user for user in node.users if is_getitem(user))
        return frozenset(found)

    def _grow_after(self, members: frozenset[fx.Node], several: bool) -> frozenset[fx.Node]:
        grown = set(members)
        waiting = sorted({u for m in grown for u in m.users} - grown, key=self.order.__getitem__)
        seen = set(waiting)
        while waiting and len(grown) < MAX_MEMBERS:
            node = waiting.pop(0)
            if not self._may_join(node, several) or not self._free_of(node, grown):
                continue
            added = self._with_getitems({node})
            grown |= added
            fresh = {u for m in added for u in m.users} - seen - grown
            seen |= fresh
            waiting = sorted([*waiting, *fresh], key=self.order.__getitem__)
        return frozenset(grown)

    def _free_of(self, node: fx.Node, members: set[fx.Node]) -> bool:
        """Whether no operand of `node` outside the region depends on a member."""
        mask = self._mask(members)
        return all(
            operand in members or not self.before[operand] & mask
            for operand in node.all_input_nodes
        )

    def _grow_before(self, members: frozenset[fx.Node], several: bool) -> frozenset[fx.Node]:
        grown = set(members)
        waiting = [n for m in grown for n in m.all_input_nodes]
        while waiting and len(grown) < MAX_MEMBERS:
            node = waiting.pop()
            if node in grown or any(user not in grown for user in node.users):
                continue
            if is_getitem(node):  # joins with its operator
                waiting.extend(node.all_input_nodes)
                continue
            if self._may_join(node, several):
                grown |= self._with_getitems({node})
                waiting.extend(node.all_input_nodes)
        return frozenset(grown)

    def _make(self, members: frozenset[fx.Node]) -> Region | Reason | None:
        """The region of these members, or why there is none; None: its shape is wrong."""
        mask = self._mask(members)
        outside = {n for m in members for n in m.all_input_nodes} - members
        if any(self.before[n] & mask for n in outside):
            return None
        outputs = self._outputs(members)
        if not outputs or len(outputs) > 16:
            return None
        ordered = self._ordered(members, outputs)
        try:
            text, inputs, device = signature(ordered, outputs, self._frozen(members, outside))
        except Unsupported as error:
            return error.reason
        if len(inputs) > 64:
            return None
        try:
            normalized = self.rules.normalize(text)
        except Exception:  # the op cannot be a region at all: views, random numbers, odd arguments
            return Reason.UNSUPPORTED_OP
        refused = self.rules.why_not_generated(normalized) is not None
        heavy = sum(op_name(n) in self.rules.heavy for n in ordered)
        reduces = any(op_name(n) in self.rules.anchors - self.rules.heavy for n in ordered)
        if refused and (heavy > 1 or (heavy == 1 and reduces)):
            return None  # agents write kernels around one anchor
        by_agents = refused and heavy == 1
        if refused and not by_agents:
            return Reason.NO_KERNEL_GENERATOR
        return Region(ordered, tuple(inputs), outputs, device, normalized, by_agents)

    def _frozen(self, members: frozenset[fx.Node], outside: Iterable[fx.Node]) -> set[fx.Node]:
        """The inputs that a kernel may prepare once: frozen float32 operands of a heavy op. Others
        are not marked, so that regions keep their keys."""
        return {
            node
            for node in outside
            if any(user in members and op_name(user) in self.rules.heavy for user in node.users)
            and is_frozen(node)
            and node.meta["val"].dim() > 1
            and node.meta["val"].dtype == torch.float32
        }

    def _outputs(self, members: frozenset[fx.Node]) -> tuple[tuple[fx.Node, int], ...]:
        found = []
        for node in sorted(members, key=self.order.__getitem__):
            if not any(user not in members for user in node.users):
                continue
            if is_getitem(node):
                source, out = node.args
                assert isinstance(source, fx.Node) and isinstance(out, int)
                found.append((source, out))
            else:
                found.append((node, 0))
        return tuple(dict.fromkeys(found))

    def _ordered(
        self, members: frozenset[fx.Node], outputs: Iterable[tuple[fx.Node, int]]
    ) -> tuple[fx.Node, ...]:
        """Members, depth first from the outputs: independent of the rest of the graph."""
        ordered: dict[fx.Node, None] = {}

        def visit(node: fx.Node) -> None:
            if node in members and node not in ordered:
                for operand in node.all_input_nodes:
                    visit(operand)
                ordered[node] = None

        for node, _ in outputs:
            visit(node)
        for node in sorted(members - ordered.keys(), key=self.order.__getitem__):
            visit(node)  # getitems, and ops that nothing uses
        return tuple(ordered)

    def _mask(self, members: Iterable[fx.Node]) -> int:
        mask = 0
        for node in members:
            mask |= 1 << self.order[node]
        return mask

    def _update_before(self) -> None:
        """Dependencies with each region found so far taken as one node."""
        groups: dict[int, list[fx.Node]] = {}
        for node, number in self.region_of.items():
            groups.setdefault(number, []).append(node)
        self.before.clear()
        for start in self.nodes:
            stack = [start]
            while stack:
                node = stack[-1]
                if node in self.before:
                    stack.pop()
                    continue
                group = groups.get(self.region_of.get(node, -1), [node])
                operands = {n for m in group for n in m.all_input_nodes} - set(group)
                missing = [n for n in operands if n not in self.before]
                if missing:
                    stack.extend(missing)
                    continue
                bits = self._mask(group)
                for operand in operands:
                    bits |= self.before[operand]
                self.before.update(dict.fromkeys(group, bits))
                stack.pop()
