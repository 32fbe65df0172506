"""Blocks that are left by the side: ``try``, ``with``, ``match``."""

import ast
from collections.abc import Sequence
from typing import Final

import attrs

from ownership.lint.alternatives import Alternative, declared, is_covered
from ownership.lint.known_calls import qualified_name
from ownership.lint.loops import Jumps, Loops
from ownership.lint.operands import Operand
from ownership.lint.state import State, join_all
from ownership.lint.types import ANY, Function, Instance, Type, elements_of

__all__ = ["Blocks"]

_REFUSALS: Final = frozenset(
    {
        "StaleHandle",
        "WrongOwner",
        "ForeignHandle",
        "LedgerError",
        "BaseChanged",
        "OwnershipError",
        "TypeError",
    }
)


class Blocks(Loops):
    """Statements with several ways out."""

    _fields: dict[int, ast.Attribute]

    # try

    def try_(self, node: ast.Try | ast.TryStar, state: State) -> State | None:
        """``try``: handlers begin as it was before any call that may raise."""
        if not node.finalbody:
            return self._guarded(node, state)
        outer, self.jumps = self.jumps, Jumps()
        before = state.copy()
        self.raising.append([before])
        end = self._guarded(node, state)
        raised = self.raising.pop()
        inner, self.jumps = self.jumps, outer
        left = [state for state, _ in inner.exits]
        # What is wrong is reported once, for all ways into it; each then goes on by itself.
        self._finally(
            node,
            [*raised, *inner.breaks, *inner.continues, *left, *([end] if end is not None else [])],
            None,
        )
        self.silent += 1
        end = self._each_way(node, inner, outer, end)
        self.silent -= 1
        return end

    def _each_way(
        self, node: ast.Try | ast.TryStar, inner: Jumps, outer: Jumps, end: State | None
    ) -> State | None:
        for states, target in ((inner.breaks, outer.breaks), (inner.continues, outer.continues)):
            side = self._finally(node, states, None)
            target.extend([side] if side is not None else [])
        for left, at in inner.exits:
            after = self._finally(node, [left], at)
            outer.exits += [(after, at)] if after is not None else []
        return None if end is None else self.block(node.finalbody, end)

    def _finally(
        self, node: ast.Try | ast.TryStar, states: Sequence[State], at: ast.AST | None
    ) -> State | None:
        joined = join_all([state.copy() for state in states], self.joint(at or node.finalbody[0]))
        return None if joined is None else self.block(node.finalbody, joined)

    def _guarded(self, node: ast.Try | ast.TryStar, state: State) -> State | None:
        if not node.handlers:
            end = self.block(node.body, state)
            return end if end is None or not node.orelse else self.block(node.orelse, end)
        before = state.copy()
        outer, self.jumps = self.jumps, Jumps()
        self.raising.append([])
        end = self.block(node.body, state)
        raised = self.raising.pop()
        inner, self.jumps = self.jumps, outer
        outer.breaks += inner.breaks
        outer.continues += inner.continues
        for left, at in inner.exits:
            if isinstance(at, ast.Raise):
                raised.append(left)
            else:
                outer.exits.append((left, at))
        if end is not None and node.orelse:
            end = self.block(node.orelse, end)
        caught = join_all(raised or [before], self.joint(node.handlers[0]))
        handled = [self._handler(one, (caught or before).copy()) for one in node.handlers]
        return join_all([end, *handled], self.joint(node))

    def _handler(self, handler: ast.ExceptHandler, state: State) -> State | None:
        if handler.name is not None:
            kind = self.members.annotations.read(handler.type, self.module)[0]
            self.rename(handler, handler.name, Operand(handler, kind), state)
        return self.block(handler.body, state)

    # with

    def with_(self, node: ast.With | ast.AsyncWith, state: State) -> State | None:
        """``with``: a block that may test a refusal, or swallow what is raised in it."""
        swallows = refuses = must_raise = raises = False
        for item in node.items:
            operand = self.eval(item.context_expr, state)
            if isinstance(node, ast.AsyncWith):
                self.hold(state, node)
            name = self._context_name(item.context_expr, state)
            if name == "pytest.raises" and isinstance(item.context_expr, ast.Call):
                swallows = must_raise = True
                refuses = refuses or self._is_refusal(item.context_expr)
            swallows = swallows or name == "contextlib.suppress"
            raises = raises or self._raises_at_its_end(operand)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, self._entered(item, operand, state), state)
        if refuses:
            return self._refusal(node, state)
        if swallows:
            return self._swallowing(node, state, must_raise=must_raise)
        end = self.block(node.body, state)
        return None if raises else end

    def _raises_at_its_end(self, manager: Operand) -> bool:
        """Whether nothing behind the block is reached, as the manager's ``__exit__`` says."""
        if not isinstance(manager.type, Instance):
            return False
        leave = self.members.member(manager.type, "__exit__")
        return leave is not None and self.never_returns(leave.type)

    def _context_name(self, node: ast.expr, state: State) -> str:
        if not isinstance(node, ast.Call):
            return ""
        self.silent += 1
        kind = self.eval(node.func, state).type
        self.silent -= 1
        return qualified_name(kind)

    def _entered(self, item: ast.withitem, operand: Operand, state: State) -> Operand:
        node = item.context_expr
        if isinstance(node, ast.Call):
            self.silent += 1
            callee = self.eval(node.func, state).type
            self.silent -= 1
            if isinstance(callee, Function) and any(
                name.endswith("contextmanager") for name in callee.info.decorators
            ):
                returns = callee.info.node.returns
                kind = self.members.annotations.read(
                    returns, callee.info.module, callee.info.owner
                )[0]
                return Operand(node, elements_of(kind))
        if operand.value is not None or not isinstance(operand.type, Instance):
            return operand
        for name in ("__enter__", "__aenter__"):
            member = self.members.member(operand.type, name)
            if member is not None:
                return Operand(node, self.members.result(member.type, []))
        return operand

    def _is_refusal(self, call: ast.Call) -> bool:
        nodes = [node for argument in call.args for node in ast.walk(argument)]
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        return bool(
            _REFUSALS & (names | {node.attr for node in nodes if isinstance(node, ast.Attribute)})
        )

    def _refusal(self, node: ast.With | ast.AsyncWith, state: State) -> State:
        """The block tests that a mistake is refused: nothing in it is judged, nothing changes."""
        outer, self.jumps = self.jumps, Jumps()
        self.silent += 1
        inner = self.block(node.body, state.copy())
        self.silent -= 1
        self.jumps = outer
        self.is_dead = False
        if inner is not None:
            for name, kind in inner.types.items():
                state.types.setdefault(name, kind)
        return state

    def _swallowing(
        self, node: ast.With | ast.AsyncWith, state: State, *, must_raise: bool
    ) -> State | None:
        before = state.copy()
        outer, self.jumps = self.jumps, Jumps()
        self.raising.append([])
        end = self.block(node.body, state)
        raised = self.raising.pop()
        inner, self.jumps = self.jumps, outer
        outer.breaks += inner.breaks
        outer.continues += inner.continues
        raised += [left for left, at in inner.exits if isinstance(at, ast.Raise)]
        outer.exits += [(left, at) for left, at in inner.exits if not isinstance(at, ast.Raise)]
        if must_raise:
            return join_all(raised or [before], self.joint(node))
        return join_all([end, *(raised or [before])], self.joint(node))

    # match

    def match(self, node: ast.Match, state: State) -> State | None:
        """``match``: each case narrows the subject for its body, and for the cases after it."""
        operand = self.eval(node.subject, state)
        rest: State | None = state
        ends: list[State | None] = []
        left = self._alternatives(node.subject, state)
        for case in node.cases:
            if rest is None:
                break
            taken, rest = self._case(case, node.subject, operand, rest)
            if left is not None and case.guard is None:
                left = self._not_covered(left, case.pattern)
                rest = rest if left else None
            if taken is not None:
                ends.append(self.block(case.body, taken))
        return join_all([*ends, rest], self.joint(node))

    def _alternatives(self, subject: ast.expr, state: State) -> list[Alternative] | None:
        """What a subject may be, as far as that is declared."""
        base: Type = ANY
        if isinstance(subject, ast.Attribute):
            self.silent += 1
            base = self.eval(subject.value, state).type
            self.silent -= 1
        return declared(subject, base, self.function, self.members)

    def _not_covered(self, left: Sequence[Alternative], pattern: ast.pattern) -> list[Alternative]:
        return [one for one in left if not is_covered(one, pattern, self.function, self.members)]

    def _case(
        self, case: ast.match_case, subject: ast.expr, operand: Operand, state: State
    ) -> tuple[State | None, State | None]:
        taken, rest = self._pattern(case.pattern, subject, operand, state)
        if taken is None or case.guard is None:
            return taken, rest
        guarded, refused = self.narrow(case.guard, taken)
        return guarded, join_all([rest, refused], self.joint(case.guard))

    def _pattern(
        self, pattern: ast.pattern, subject: ast.expr, operand: Operand, state: State
    ) -> tuple[State | None, State | None]:
        match pattern:
            case ast.MatchAs(pattern=None):
                whole = state.copy()
                self._capture_name(pattern.name, operand, whole)
                return whole, None
            case ast.MatchAs(pattern=inner) if inner is not None:
                taken, rest = self._pattern(inner, subject, operand, state)
                if taken is not None:
                    self._capture_name(pattern.name, self._as_taken(inner, operand), taken)
                return taken, rest
            case ast.MatchSingleton(value=None):
                is_none = ast.Compare(subject, [ast.Is()], [ast.Constant(None)])
                return self.narrow(is_none, state.copy())
            case ast.MatchClass():
                return self._class_pattern(pattern, subject, state)
            case ast.MatchOr():
                return self._any_pattern(pattern, subject, operand, state)
            case _:
                return state.copy(), state.copy()

    def _as_taken(self, pattern: ast.pattern, operand: Operand) -> Operand:
        """An operand as what a pattern lets through."""
        patterns = pattern.patterns if isinstance(pattern, ast.MatchOr) else [pattern]
        named = [self.classes(one.cls) for one in patterns if isinstance(one, ast.MatchClass)]
        if len(named) < len(patterns) or [] in named:
            return operand
        kind = self.meet(operand.type, [one for classes in named for one in classes])
        return attrs.evolve(operand, type=kind)

    def _capture_name(self, name: str | None, operand: Operand, state: State) -> None:
        if name is not None:
            self.rename(operand.node, name, operand, state)

    def _class_pattern(
        self, pattern: ast.MatchClass, subject: ast.expr, state: State
    ) -> tuple[State | None, State | None]:
        taken, rest = self.by_class(subject, self.classes(pattern.cls), state.copy())
        if taken is None:
            return None, rest
        is_certain = True
        for name, inner in zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True):
            field = self._field_node(subject, name, inner)
            match inner:
                case ast.MatchAs(pattern=None):
                    if inner.name is not None:
                        self.rename(inner, inner.name, self.eval(field, taken), taken)
                case _:
                    is_certain = False
        is_certain = is_certain and not pattern.patterns
        return taken, rest if is_certain else join_all([rest, state.copy()], self.joint(pattern))

    def _field_node(self, subject: ast.expr, name: str, at: ast.pattern) -> ast.Attribute:
        """``subject.name`` as if it stood at a pattern; the same node each time."""
        field = ast.copy_location(ast.Attribute(subject, name, ast.Load()), at)
        return self._fields.setdefault(id(at), field)

    def _any_pattern(
        self, pattern: ast.MatchOr, subject: ast.expr, operand: Operand, state: State
    ) -> tuple[State | None, State | None]:
        taken: list[State | None] = []
        rest: State | None = state
        for inner in pattern.patterns:
            if rest is None:
                break
            one, rest = self._pattern(inner, subject, operand, rest)
            taken.append(one)
        return join_all(taken, self.joint(pattern)), rest
