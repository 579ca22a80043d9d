"""Syntax trees as texts that change with the meaning of the code only, for code digests."""

import ast


def meaning(tree: ast.Module) -> str:
    """A file's tree as text, without what changes no result."""
    return canonical(_Computing().visit(tree))


def is_type_checking(node: ast.AST) -> bool:
    """Whether a statement is `if TYPE_CHECKING:`, whose block never runs."""
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return "TYPE_CHECKING" in (getattr(test, "id", None), getattr(test, "attr", None))


class _Computing(ast.NodeTransformer):
    """Removes texts of errors, looks of methods, and annotations of functions and inside of them.

    Annotations in a class or module stay; those in a class define the fields of a dataclass.
    """

    _in_function = False

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        node.exc = node.exc and _Textless().visit(node.exc)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._inside(node, True)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [statement for statement in node.body if not _is_look(statement)]
        return self._inside(node, False)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if not self._in_function:
            return node
        return node.value and ast.Assign([node.target], node.value)

    def _inside(self, node: ast.AST, in_function: bool) -> ast.AST:
        before, self._in_function = self._in_function, in_function
        self.generic_visit(node)
        self._in_function = before
        return node


def _is_look(node: ast.AST) -> bool:
    """Whether a statement of a class is the `look` of a method, a title, a colour and so on."""
    match node:
        case ast.Assign(
            [ast.Name("look")], ast.Tuple([ast.Constant(str()), ast.Constant(str()), *_])
        ):
            return True
    return False


class _Textless(ast.NodeTransformer):
    """Replaces every text by the empty one."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.Constant:
        return ast.Constant("")

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("") if isinstance(node.value, str) else node


def canonical(node: object) -> str:
    """`node` as text that depends neither on its formatting nor on the version of Python."""
    if isinstance(node, ast.JoinedStr):
        return _canonical_fstring(node)
    if isinstance(node, ast.AST):
        fields = []
        for name in node._fields:
            value = getattr(node, name, None)
            if name in ("ctx", "kind", "type_comment"):
                continue
            if value is None and not isinstance(node, ast.Constant):
                continue  # equal to an absent field: newer versions add optional fields
            if isinstance(value, list):
                if name in ("body", "orelse", "finalbody"):
                    value = _without_idle(value)
                if not value:
                    continue
            fields.append(f"{name}={canonical(value)}")
        return f"{type(node).__name__}({','.join(fields)})"
    if isinstance(node, list):
        return f"[{','.join(map(canonical, node))}]"
    return f"{type(node).__name__}:{node!r}"


def _without_idle(body: list) -> list:
    """Statements without docstrings and `if TYPE_CHECKING:` blocks, which do nothing."""
    kept = []
    for node in body:
        match node:
            case ast.Expr(ast.Constant(str())):
                continue
        kept += node.orelse if is_type_checking(node) else [node]
    return kept


def _canonical_fstring(node: ast.JoinedStr) -> str:
    """An f-string's text with literal parts merged; versions of Python split them differently."""
    parts: list[tuple[str, str]] = []
    for value in node.values:
        if not isinstance(value, ast.Constant):
            parts.append(("value", canonical(value)))
        elif parts and parts[-1][0] == "text":
            parts[-1] = ("text", parts[-1][1] + value.value)
        elif value.value:
            parts.append(("text", value.value))
    return f"JoinedStr{parts!r}"
