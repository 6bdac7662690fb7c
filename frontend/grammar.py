"""The grammar of TL, as PLY reads it: a rule's docstring is its production, its body builds the node.

Expressions are ambiguous as written; `precedence` decides, as the language reference lists it. What begins with a word
of its own (`sum[k] e`, `for[i] e`, `-e`, `not e`, `fn(x) => e`) may stand as a right operand, and the precedence of its
rule says how far it extends. Three things are parsed wider than the language, and `narrow` brings them back:

- a type argument and a dimension are expressions (`Linear(I, 3 * C)`), of which some become types;
- `?n` is a primary expression, as `Linear(?, 3)` needs it; what no type takes is reported at the end;
- an argument of a call may be a range; only `progress(0..n)` may keep one.

Parentheses leave no node, but belong to the span of what they hold. `stop` ends the parse of this definition.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tlc.frontend import ast, narrow
from tlc.frontend.narrow import stop
from tlc.frontend.records import dataclass
from tlc.frontend.source import Span
from tlc.frontend.tokens import TERMINALS, Token

tokens = TERMINALS
start = "module"

# From loose to tight.
precedence = (
    ("right", "FOR", "FATARROW"),
    ("left", "OR"),
    ("left", "AND"),
    ("right", "NOT"),
    ("right", "QUANTIFIER"),
    ("nonassoc", "EQ", "NE", "LT", "LE", "GT", "GE"),
    ("left", "BAR"),
    ("left", "CARET"),
    ("left", "AMPERSAND"),
    ("left", "SHL", "SHR"),
    ("left", "PLUS", "MINUS"),
    ("right", "REDUCER"),
    ("left", "STAR", "SLASH", "FLOORDIV", "PERCENT", "AT"),
    ("left", "AS"),
    ("right", "SIGN", "TILDE"),
    ("right", "POWER"),
)


def _span(first: Any, last: Any) -> Span:
    a: Span = first.span
    b: Span = last.span
    return Span(a.source, a.start, b.end)


# ---------------------------------------------------------------- lists
# Every list is left-recursive and is a Python list while it grows.


def p_optional_list(p: Any) -> None:
    """
    params   :
             | param_list
             | param_list COMMA
    fields   :
             | field_list
             | field_list COMMA
    arguments :
             | argument_list
             | argument_list COMMA
    types    :
             | type_list
             | type_list COMMA
    statements :
             | statement_list
             | statement_list NEWLINE
    items    :
             | item_list
             | item_list NEWLINE
    """
    p[0] = p[1] if len(p) > 1 else []


def p_list(p: Any) -> None:
    """
    param_list : param
               | param_list COMMA param
    field_list : field
               | field_list COMMA field
    argument_list : argument
               | argument_list COMMA argument
    type_list  : type
               | type_list COMMA type
    statement_list : statement
               | statement_list NEWLINE statement
    item_list  : item
               | item_list NEWLINE item
    expression_list : expression
               | expression_list COMMA expression
    target_list : target
               | target_list COMMA target
    index_list : index
               | index_list COMMA index
    subscript_list : subscript
               | subscript_list COMMA subscript
    variable_list : variable
               | variable_list COMMA variable
    """
    if len(p) == 2:
        p[0] = [p[1]]
    else:
        p[1].append(p[3])
        p[0] = p[1]


# ---------------------------------------------------------------- files and definitions


def p_module(p: Any) -> None:
    """module : items"""
    p[0] = p[1]


def p_item(p: Any) -> None:
    """
    item : definition
         | statement
    """
    p[0] = p[1]


def p_definition(p: Any) -> None:
    """
    definition : function
               | struct
               | const
               | use
    """
    p[0] = p[1]


@dataclass(frozen=True)
class _Heading:
    """What stands before the name of a function: `@vjp(g)`, `extern`, `fn`."""

    span: Span
    extern: bool
    rule: ast.Expr | None
    doc: str


def p_heading(p: Any) -> None:
    """
    heading : FN
            | EXTERN FN
    """
    p[0] = _Heading(_span(p[1], p[len(p) - 1]), p[1].type == "EXTERN", None, p[1].doc)


def p_heading_rule(p: Any) -> None:
    """
    heading : ATTRIBUTE NAME LPAREN expression RPAREN heading
            | ATTRIBUTE NAME LPAREN expression RPAREN NEWLINE heading
    """
    heading: _Heading = p[len(p) - 1]
    if p[2].text != "vjp":
        stop("E0113", f"unknown attribute `@{p[2].text}`", _span(p[1], p[2]), help="`@vjp(g)` gives a function its own derivative")
    if heading.rule is not None:
        stop("E0113", "a second `@vjp` for one function", _span(p[1], p[5]))
    p[0] = _Heading(_span(p[1], heading), heading.extern, p[4], p[1].doc or heading.doc)


def p_function(p: Any) -> None:
    """function : heading NAME generics LPAREN params RPAREN result body"""
    heading, name, params, result, body = p[1], p[2], p[5], p[7], p[8]
    narrow.check_function(name, params, body, heading.extern)
    p[0] = ast.Function(
        span=_span(heading, body or result or p[6]),
        name=name.text,
        name_span=name.span,
        type_vars=tuple(p[3]),
        params=tuple(params),
        result=result,
        body=body,
        extern=heading.extern,
        rule=heading.rule,
        doc=heading.doc,
    )


def p_generics(p: Any) -> None:
    """
    generics :
             | LBRACKET variable_list RBRACKET
    """
    p[0] = p[2] if len(p) > 1 else []
    for variable in p[0]:
        if not variable.bound:
            help = f"write `{variable.name}: float`, or int, num, any, tree"
            stop("E0113", f"the type variable `{variable.name}` has no bound", variable.span, help=help)


def p_variable(p: Any) -> None:
    """
    variable : NAME
             | NAME COLON NAME
    """
    p[0] = ast.TypeVariable(span=_span(p[1], p[len(p) - 1]), name=p[1].text, bound=p[3].text if len(p) > 2 else "")


def p_result(p: Any) -> None:
    """
    result :
           | ARROW type
    """
    p[0] = p[2] if len(p) > 1 else None


def p_body(p: Any) -> None:
    """
    body :
         | ASSIGN expression
         | block
    """
    p[0] = p[len(p) - 1] if len(p) > 1 else None


def p_param(p: Any) -> None:
    """
    param : NAME
          | NAME COLON type
          | NAME COLON type ASSIGN expression
    """
    kind = p[3] if len(p) > 2 else None
    default = p[5] if len(p) > 4 else None
    p[0] = ast.Param(span=_span(p[1], default or kind or p[1]), name=p[1].text, type=kind, default=default, doc=p[1].doc)


def p_struct(p: Any) -> None:
    """
    struct : STRUCT NAME LBRACE fields RBRACE
           | STRUCT NAME LPAREN variable_list RPAREN LBRACE fields RBRACE
    """
    params = p[4] if len(p) > 6 else []
    p[0] = ast.StructDef(
        span=_span(p[1], p[len(p) - 1]),
        name=p[2].text,
        name_span=p[2].span,
        params=tuple(params),
        fields=tuple(p[len(p) - 2]),
        doc=p[1].doc,
    )


def p_field(p: Any) -> None:
    """field : NAME COLON type"""
    p[0] = ast.Param(span=_span(p[1], p[3]), name=p[1].text, type=p[3], default=None, doc=p[1].doc)


def p_const(p: Any) -> None:
    """const : CONST NAME annotation ASSIGN expression"""
    p[0] = ast.ConstDef(span=_span(p[1], p[5]), name=p[2].text, name_span=p[2].span, type=p[3], value=p[5], doc=p[1].doc)


def p_use(p: Any) -> None:
    """
    use : USE path
        | USE path AS NAME
    """
    path: str = p[2].text
    p[0] = ast.Use(span=_span(p[1], p[len(p) - 1]), path=path, alias=p[4].text if len(p) > 3 else path.rsplit("/", 1)[-1])


@dataclass(frozen=True)
class _Text:
    """Some words of the source, joined."""

    text: str
    span: Span


def p_path(p: Any) -> None:
    """
    path : NAME
         | DOT SLASH steps
         | DOTDOT SLASH steps
    """
    p[0] = _joined(p)


def p_steps(p: Any) -> None:
    """
    steps : NAME
          | DOTDOT SLASH steps
          | NAME SLASH steps
    """
    p[0] = _joined(p)


def _joined(p: Any) -> _Text:
    return _Text("".join(p[i].text for i in range(1, len(p))), _span(p[1], p[len(p) - 1]))


# ---------------------------------------------------------------- types


def p_type_name(p: Any) -> None:
    """type : dotted type_arguments dimensions"""
    args, dims = p[2], p[3]
    last = dims or args or p[1]
    p[0] = ast.TypeName(
        span=_span(p[1], last),
        name=p[1].text,
        args=args and tuple(narrow.type_argument(p.parser.context, e) for e in args.items),
        dims=tuple(narrow.dimension(p.parser.context, e) for e in dims.items) if dims else (),
    )


@dataclass(frozen=True)
class _Bracketed:
    items: tuple[Any, ...]
    span: Span


def p_bracketed(p: Any) -> None:
    """
    type_arguments :
                   | LPAREN expression_list RPAREN
                   | LPAREN expression_list COMMA RPAREN
    dimensions     :
                   | LBRACKET expression_list RBRACKET
                   | LBRACKET expression_list COMMA RBRACKET
    """
    p[0] = _Bracketed(tuple(p[2]), _span(p[1], p[len(p) - 1])) if len(p) > 1 else None


def p_dotted(p: Any) -> None:
    """
    dotted : NAME
           | dotted DOT NAME
    """
    p[0] = p[1] if len(p) == 2 else _joined(p)


def p_type_tuple(p: Any) -> None:
    """type : LPAREN types RPAREN"""
    p[0] = ast.TupleTypeNode(span=_span(p[1], p[3]), items=tuple(p[2]))


def p_type_function(p: Any) -> None:
    """type : FN LPAREN types RPAREN result"""
    p[0] = ast.FunctionTypeNode(span=_span(p[1], p[5] or p[4]), params=tuple(p[3]), result=p[5])


def p_annotation(p: Any) -> None:
    """
    annotation :
               | COLON type
    """
    p[0] = p[2] if len(p) > 1 else None


# ---------------------------------------------------------------- statements


def p_block(p: Any) -> None:
    """block : LBRACE statements RBRACE"""
    p[0] = ast.Block(span=_span(p[1], p[3]), stmts=tuple(p[2]))


def p_binding(p: Any) -> None:
    """
    statement : LET target annotation ASSIGN expression
              | VAR target annotation ASSIGN expression
    """
    p[0] = ast.Binding(span=_span(p[1], p[5]), mutable=p[1].type == "VAR", target=p[2], type=p[3], value=p[5])


def p_target(p: Any) -> None:
    """
    target : NAME
           | LPAREN target_list RPAREN
           | LPAREN target_list COMMA RPAREN
    """
    if len(p) == 2:
        p[0] = ast.Target(span=p[1].span, name=p[1].text, items=())
    else:
        p[0] = ast.Target(span=_span(p[1], p[len(p) - 1]), name="", items=tuple(p[2]))


def p_assignment(p: Any) -> None:
    """
    statement : expression ASSIGN expression
              | expression AUGASSIGN expression
    """
    op = p[2].text[:-1]
    narrow.check_assignable(p[1], op)
    p[0] = ast.Assignment(span=_span(p[1], p[3]), target=p[1], op=op, value=p[3])


def p_statement_expression(p: Any) -> None:
    """statement : expression"""
    p[0] = ast.ExprStmt(span=p[1].span, expr=p[1])


def p_while(p: Any) -> None:
    """statement : WHILE expression block"""
    p[0] = ast.While(span=_span(p[1], p[3]), cond=p[2], body=p[3])


def p_for(p: Any) -> None:
    """statement : FOR target IN sequence block"""
    if isinstance(p[4], ast.Progress):
        p.parser.context.take(p[4])
    p[0] = ast.For(span=_span(p[1], p[5]), target=p[2], sequence=p[4], body=p[5])


def p_sequence(p: Any) -> None:
    """
    sequence : expression
             | range
    """
    p[0] = p[1]


def p_range(p: Any) -> None:
    """
    range : expression DOTDOT expression
          | expression DOTDOT expression BY expression
    """
    step = p[5] if len(p) > 4 else None
    for end in (p[1], p[3], step):
        narrow.check_arithmetic(p.parser.context, end)
    p[0] = ast.RangeExpr(span=_span(p[1], step or p[3]), lo=p[1], hi=p[3], step=step)


def p_simple_statement(p: Any) -> None:
    """
    statement : BREAK
              | CONTINUE
    """
    p[0] = (ast.Break if p[1].type == "BREAK" else ast.Continue)(span=p[1].span)


def p_return(p: Any) -> None:
    """
    statement : RETURN
              | RETURN expression
    """
    p[0] = ast.Return(span=_span(p[1], p[len(p) - 1]), value=p[2] if len(p) > 2 else None)


def p_assert(p: Any) -> None:
    """
    statement : ASSERT expression
              | ASSERT expression COMMA expression
    """
    p[0] = ast.Assert(span=_span(p[1], p[len(p) - 1]), cond=p[2], message=p[4] if len(p) > 3 else None)


# ---------------------------------------------------------------- expressions


def p_binary(p: Any) -> None:
    """
    expression : expression OR expression
               | expression AND expression
               | expression EQ expression
               | expression NE expression
               | expression LT expression
               | expression LE expression
               | expression GT expression
               | expression GE expression
               | expression BAR expression
               | expression CARET expression
               | expression AMPERSAND expression
               | expression SHL expression
               | expression SHR expression
               | expression PLUS expression
               | expression MINUS expression
               | expression STAR expression
               | expression SLASH expression
               | expression FLOORDIV expression
               | expression PERCENT expression
               | expression AT expression
               | expression POWER expression
    """
    left, op, right = p[1], p[2], p[3]
    if op.type not in ("AND", "OR"):
        narrow.refuse_not(p.parser.context, op, right)
    p[0] = ast.Binary(span=_span(left, right), op=op.text, left=left, right=right, op_span=op.span)


def p_unary(p: Any) -> None:
    """
    expression : MINUS expression %prec SIGN
               | TILDE expression
               | NOT expression
    """
    if p[1].type != "NOT":
        narrow.refuse_not(p.parser.context, p[1], p[2])
    p[0] = ast.Unary(span=_span(p[1], p[2]), op=p[1].text, operand=p[2])


def p_as(p: Any) -> None:
    """expression : expression AS type"""
    p[0] = ast.As(span=_span(p[1], p[3]), value=p[1], type=p[3])


def p_comprehension(p: Any) -> None:
    """
    expression : FOR LBRACKET indices RBRACKET expression %prec FOR
               | REDUCER LBRACKET indices RBRACKET expression %prec REDUCER
               | QUANTIFIER LBRACKET indices RBRACKET expression %prec QUANTIFIER
    """
    p[0] = ast.Comprehension(span=_span(p[1], p[5]), op=p[1].text, indices=tuple(p[3]), body=p[5])


def p_indices(p: Any) -> None:
    """
    indices : index_list
            | index_list COMMA
    """
    p[0] = p[1]


def p_index(p: Any) -> None:
    """
    index : NAME
          | NAME LT expression
          | NAME IN range
    """
    lo = hi = None
    last = p[len(p) - 1]
    if len(p) > 2 and isinstance(last, ast.RangeExpr):
        if last.step is not None:
            stop("E0111", "the range of an index has no step", last.step.span, help="use a step of 1 and multiply where the index is used")
        lo, hi = last.lo, last.hi
    elif len(p) > 2:
        narrow.check_arithmetic(p.parser.context, last)
        hi = last
    p[0] = ast.IndexRange(span=_span(p[1], last), name=p[1].text, lo=lo, hi=hi)


def p_lambda(p: Any) -> None:
    """expression : FN LPAREN params RPAREN FATARROW expression"""
    for param in p[3]:
        if param.default is not None:
            stop("E0113", "a parameter of an anonymous function has no default", param.default.span)
    p[0] = ast.Lambda(span=_span(p[1], p[6]), params=tuple(p[3]), body=p[6])


def p_expression_postfix(p: Any) -> None:
    """
    expression : postfix
    postfix    : primary
    primary    : conditional
               | block
    """
    p[0] = p[1]


def p_conditional(p: Any) -> None:
    """
    conditional : IF expression block
                | IF expression block ELSE block
                | IF expression block ELSE conditional
    """
    p[0] = ast.IfExpr(span=_span(p[1], p[len(p) - 1]), cond=p[2], then=p[3], other=p[5] if len(p) > 4 else None)


def p_field_access(p: Any) -> None:
    """postfix : postfix DOT NAME"""
    p[0] = ast.Field(span=_span(p[1], p[3]), base=p[1], name=p[3].text, name_span=p[3].span)


def p_subscription(p: Any) -> None:
    """
    postfix : postfix LBRACKET subscript_list RBRACKET
            | postfix LBRACKET subscript_list COMMA RBRACKET
    """
    p[0] = ast.Subscript(span=_span(p[1], p[len(p) - 1]), base=p[1], items=tuple(p[3]))


def p_subscript(p: Any) -> None:
    """
    subscript : expression
              | ellipsis
              | slice
    """
    p[0] = p[1]


def p_ellipsis(p: Any) -> None:
    """ellipsis : ELLIPSIS"""
    p[0] = ast.Ellipsis(span=p[1].span)


def p_slice(p: Any) -> None:
    """
    slice : COLON
          | DOTDOT
          | DOTDOT expression
          | expression DOTDOT
          | expression DOTDOT expression
    """
    parts = [p[i] for i in range(1, len(p))]
    lo = parts[0] if not isinstance(parts[0], Token) else None
    hi = parts[-1] if not isinstance(parts[-1], Token) else None
    for end in (lo, hi):
        narrow.check_arithmetic(p.parser.context, end)
    p[0] = ast.SliceNode(span=_span(parts[0], parts[-1]), lo=lo, hi=hi)


def p_call(p: Any) -> None:
    """postfix : postfix LPAREN arguments RPAREN"""
    p[0] = narrow.call(p.parser.context, p[1], p[3], _span(p[1], p[4]))


def p_argument(p: Any) -> None:
    """
    argument : expression
             | range
             | NAME ASSIGN expression
    """
    name = p[1].text if len(p) > 2 else ""
    p[0] = ast.Argument(span=_span(p[1], p[len(p) - 1]), name=name, value=p[len(p) - 1])


# ---------------------------------------------------------------- primaries


def p_name(p: Any) -> None:
    """primary : NAME"""
    p[0] = ast.Name(span=p[1].span, name=p[1].text)


def p_number(p: Any) -> None:
    """primary : NUMBER"""
    value, suffix = p[1].literal
    p[0] = ast.Number(span=p[1].span, value=value, suffix=suffix)


def p_truth(p: Any) -> None:
    """
    primary : TRUE
            | FALSE
    """
    p[0] = ast.Bool(span=p[1].span, value=p[1].type == "TRUE")


def p_wild(p: Any) -> None:
    """primary : WILD"""
    node = ast.Wild(span=p[1].span, name=p[1].text[1:])
    p.parser.context.leave(node)
    p[0] = node


def p_parenthesized(p: Any) -> None:
    """primary : LPAREN expression RPAREN"""
    if isinstance(p[2], ast.Wild | ast.Progress):
        p[0] = p[2]
        return
    p[0] = replace(p[2], span=_span(p[1], p[3]))


def p_tuple(p: Any) -> None:
    """
    primary : LPAREN expression COMMA RPAREN
            | LPAREN expression COMMA expression_list RPAREN
            | LPAREN expression COMMA expression_list COMMA RPAREN
    """
    rest = p[4] if isinstance(p[4], list) else []
    p[0] = ast.TupleExpr(span=_span(p[1], p[len(p) - 1]), items=(p[2], *rest))


def p_array(p: Any) -> None:
    """
    primary : LBRACKET RBRACKET
            | LBRACKET expression_list RBRACKET
            | LBRACKET expression_list COMMA RBRACKET
    """
    p[0] = ast.ListExpr(span=_span(p[1], p[len(p) - 1]), items=tuple(p[2]) if len(p) > 3 else ())


def p_string(p: Any) -> None:
    """primary : STRING_START pieces STRING_END"""
    p[0] = ast.Str(span=_span(p[1], p[3]), pieces=tuple(p[2]))


def p_pieces(p: Any) -> None:
    """
    pieces :
           | pieces TEXT
           | pieces hole
    """
    if len(p) == 1:
        p[0] = []
        return
    pieces, piece = p[1], p[2]
    if isinstance(piece, Token):
        if pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece.literal
        else:
            pieces.append(piece.literal)
    else:
        pieces.append(piece)
    p[0] = pieces


def p_hole(p: Any) -> None:
    """
    hole : HOLE expression HOLE_END
         | HOLE expression SPEC HOLE_END
    """
    p[0] = ast.Hole(span=_span(p[1], p[len(p) - 1]), expr=p[2], spec=p[3].text[1:] if len(p) > 4 else "")
