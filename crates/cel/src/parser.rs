//! Tokens to syntax tree: precedence climbing, bounded in depth. The first syntax error ends it; `syntax` then says more.

use std::sync::Arc;

use crate::ast::{Ast, Entry, Expr, Id, Literal};
use crate::escape::RESERVED;
use crate::lexer::{NOWHERE, Problem, Token, scan};
use crate::{macros, syntax};

/// Longest expression, in code points.
pub(crate) const MAX_CODE_POINTS: usize = 100_000;
/// Deepest nesting of the source and of the tree. Everything that walks a tree recurses at most
/// this deep, so that a default thread stack is always enough.
pub(crate) const MAX_DEPTH: u16 = 250;

const OR: u8 = 1;
const AND: u8 = 2;
/// Binary operators, how tightly they bind, and what they call.
const OPERATORS: [(&str, u8, &str); 14] = [
    ("||", OR, ""),
    ("&&", AND, ""),
    ("==", 3, "_==_"),
    ("!=", 3, "_!=_"),
    ("<=", 3, "_<=_"),
    (">=", 3, "_>=_"),
    ("<", 3, "_<_"),
    (">", 3, "_>_"),
    ("in", 3, "@in"),
    ("+", 4, "_+_"),
    ("-", 4, "_-_"),
    ("*", 5, "_*_"),
    ("/", 5, "_/_"),
    ("%", 5, "_%_"),
];

/// Which parts of the syntax are on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Syntax {
    /// `a.?b`, `a[?0]`, `[?x]`, `{?k: v}`, `optMap`, `optFlatMap`.
    pub optional: bool,
    /// `a.`field-name``.
    pub quoted_fields: bool,
    /// `all(k, v, …)`, `transformMap` and their like.
    pub two_variables: bool,
    /// `sortBy`.
    pub sort_by: bool,
    /// `cel.bind`.
    pub bind: bool,
    /// `math.least`, `math.greatest`.
    pub math: bool,
}

/// Parses an expression.
pub(crate) fn parse(source: &str, syntax: Syntax) -> Result<Ast, Vec<Problem>> {
    let size = source.chars().take(MAX_CODE_POINTS + 1).count();
    if size > MAX_CODE_POINTS {
        let size = source.chars().count();
        let message = format!("expression code point size exceeds limit: size: {size}, limit {MAX_CODE_POINTS}");
        return Err(vec![(NOWHERE, message)]);
    }
    let scanned = scan(source);
    let mut parser = Parser {
        tokens: scanned.tokens(),
        pos: 0,
        nesting: 0,
        ast: Ast::default(),
        depths: Vec::new(),
        syntax,
        problems: Vec::new(),
    };
    let parsed = match parser.expr() {
        Ok(_) if *parser.peek() != Token::End => Err(parser.unexpected()),
        parsed => parsed,
    };
    match parsed {
        Ok(root) if parser.problems.is_empty() && scanned.problems.is_empty() => {
            parser.ast.root = root;
            Ok(parser.ast)
        }
        Err((NOWHERE, message)) => Err(vec![(NOWHERE, message)]),
        parsed => {
            // What is wrong with the syntax is said as others say it; the rest was found on the way.
            let mut problems = syntax::errors(&scanned);
            if let Err(problem) = parsed
                && problems.is_empty()
            {
                problems.push(problem);
            }
            problems.append(&mut parser.problems);
            Err(problems)
        }
    }
}

pub(crate) struct Parser {
    tokens: Vec<(Token, u32)>,
    pos: usize,
    nesting: u16,
    pub(crate) ast: Ast,
    depths: Vec<u16>,
    pub(crate) syntax: Syntax,
    /// What is wrong, but not with the syntax: parsing goes on.
    problems: Vec<Problem>,
}

type Parsed = Result<Id, Problem>;

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.pos.min(self.tokens.len() - 1)].0
    }

    fn offset(&self) -> u32 {
        self.tokens[self.pos.min(self.tokens.len() - 1)].1
    }

    fn is(&self, op: &str) -> bool {
        matches!(self.peek(), Token::Op(o) if *o == op)
    }

    fn eat(&mut self, op: &str) -> bool {
        let yes = self.is(op);
        if yes {
            self.pos += 1;
        }
        yes
    }

    fn expect(&mut self, op: &str) -> Result<(), Problem> {
        if self.eat(op) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn unexpected(&self) -> Problem {
        (self.offset(), "Syntax error: mismatched input".to_owned())
    }

    /// Notes what is wrong and goes on with nothing in particular in its place.
    fn report(&mut self, at: u32, message: impl Into<String>) -> Parsed {
        self.problems.push((at, message.into()));
        self.push(Expr::Literal(Literal::Null), at)
    }

    /// Adds an expression whose children are there already.
    pub(crate) fn push(&mut self, expr: Expr, at: u32) -> Parsed {
        let mut depth = 0;
        children(&expr, |child| depth = depth.max(self.depths[child as usize]));
        if depth >= MAX_DEPTH {
            return Err((NOWHERE, "max recursion depth exceeded".to_owned()));
        }
        let id = self.ast.exprs.len() as Id;
        self.ast.exprs.push(expr);
        self.ast.positions.push(at);
        self.depths.push(depth + 1);
        Ok(id)
    }

    fn call(&mut self, function: &str, args: Vec<Id>, at: u32) -> Parsed {
        self.push(Expr::Call { function: function.into(), target: None, args }, at)
    }

    fn expr(&mut self) -> Parsed {
        self.nesting += 1;
        if self.nesting > MAX_DEPTH {
            return Err((NOWHERE, format!("expression recursion limit exceeded: {MAX_DEPTH}")));
        }
        let condition = self.operators(OR)?;
        let at = self.offset();
        let result = if self.eat("?") {
            let yes = self.operators(OR)?;
            self.expect(":")?;
            let no = self.expr()?;
            self.push(Expr::Conditional(condition, yes, no), at)
        } else {
            Ok(condition)
        };
        self.nesting -= 1;
        result
    }

    /// Operators that bind at least as tightly as `least`. One function for all of them: nesting costs few stack frames.
    fn operators(&mut self, least: u8) -> Parsed {
        let mut left = self.unary()?;
        loop {
            let at = self.offset();
            let Token::Op(op) = *self.peek() else { return Ok(left) };
            let Some((_, binds, function)) = OPERATORS.iter().find(|(text, ..)| *text == op) else { return Ok(left) };
            if *binds < least {
                return Ok(left);
            }
            self.pos += 1;
            let right = self.operators(binds + 1)?;
            if *binds > AND {
                left = self.call(function, vec![left, right], at)?;
                continue;
            }
            let mut terms = vec![left, right];
            while self.eat(op) {
                terms.push(self.operators(binds + 1)?);
            }
            left = self.push(if *binds == OR { Expr::Or(terms) } else { Expr::And(terms) }, at)?;
        }
    }

    fn unary(&mut self) -> Parsed {
        let at = self.offset();
        if self.is("!") {
            let mut odd = false;
            while self.eat("!") {
                odd = !odd;
            }
            let operand = self.member()?;
            return if odd { self.call("!_", vec![operand], at) } else { Ok(operand) };
        }
        let mut minuses = 0u32;
        while self.is("-") && !self.negative_literal() {
            self.pos += 1;
            minuses += 1;
        }
        let operand = self.member()?;
        if minuses % 2 == 1 { self.call("-_", vec![operand], at) } else { Ok(operand) }
    }

    /// Whether a minus and a number stand here, which together are one literal.
    fn negative_literal(&self) -> bool {
        matches!(
            self.tokens.get(self.pos + 1).map(|t| &t.0),
            Some(
                Token::Literal(Literal::Int(_) | Literal::Double(_)) | Token::IntMin | Token::Bad { number: true, .. }
            )
        )
    }

    fn member(&mut self) -> Parsed {
        let mut operand = self.primary()?;
        loop {
            let at = self.offset();
            if self.eat(".") {
                let optional = self.optional_mark()?;
                let (name, quoted) = match self.peek().clone() {
                    Token::Ident(name) => (name, false),
                    Token::Quoted(name) if self.syntax.quoted_fields => (name, true),
                    Token::Quoted(name) => {
                        self.report(self.offset(), "unsupported syntax: '`'")?;
                        (name, true)
                    }
                    _ => return Err(self.unexpected()),
                };
                self.pos += 1;
                let open = self.offset();
                if !optional && !quoted && self.eat("(") {
                    let args = self.args(")")?;
                    operand = self.member_call(operand, name, args, open)?;
                } else {
                    operand = self.push(Expr::Select { operand, field: name, optional }, at)?;
                }
            } else if self.eat("[") {
                let optional = self.optional_mark()?;
                let index = self.expr()?;
                self.expect("]")?;
                operand = self.push(Expr::Index { operand, index, optional }, at)?;
            } else if self.is("{") && self.ast.qualified_name(operand).is_some() {
                operand = self.structure(operand)?;
            } else {
                return Ok(operand);
            }
        }
    }

    fn optional_mark(&mut self) -> Result<bool, Problem> {
        let at = self.offset();
        let optional = self.eat("?");
        if optional && !self.syntax.optional {
            self.report(at, "unsupported syntax '?'")?;
        }
        Ok(optional)
    }

    fn member_call(&mut self, target: Id, name: Arc<str>, args: Vec<Id>, at: u32) -> Parsed {
        match macros::member(self, target, &name, &args, at) {
            Ok(Some(expanded)) => Ok(expanded),
            Ok(None) => self.push(Expr::Call { function: name, target: Some(target), args }, at),
            Err(problem) => self.refused(problem),
        }
    }

    fn args(&mut self, close: &str) -> Result<Vec<Id>, Problem> {
        let mut args = Vec::new();
        if self.eat(close) {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if self.eat(close) {
                return Ok(args);
            }
            self.expect(",")?;
        }
    }

    fn primary(&mut self) -> Parsed {
        let at = self.offset();
        match self.peek().clone() {
            Token::Literal(literal) => {
                self.pos += 1;
                self.push(Expr::Literal(literal), at)
            }
            Token::IntMin => {
                self.pos += 1;
                self.report(at, "invalid int literal")
            }
            Token::Bad { why, .. } => {
                self.pos += 1;
                self.report(at, why)
            }
            Token::Op("-") => {
                self.pos += 1;
                let literal = match self.peek() {
                    Token::Literal(Literal::Int(v)) => Literal::Int(-*v),
                    Token::Literal(Literal::Double(v)) => Literal::Double(-*v),
                    Token::IntMin => Literal::Int(i64::MIN),
                    Token::Bad { why, number: true } => {
                        let why = *why;
                        self.pos += 1;
                        return self.report(at, why);
                    }
                    _ => return Err(self.unexpected()),
                };
                self.pos += 1;
                self.push(Expr::Literal(literal), at)
            }
            Token::Op("(") => {
                self.pos += 1;
                let inner = self.expr()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Op("[") => self.list(),
            Token::Op("{") => self.map(),
            Token::Op(".") => {
                self.pos += 1;
                let Token::Ident(name) = self.peek().clone() else { return Err(self.unexpected()) };
                self.named(format!(".{name}").into(), at)
            }
            Token::Ident(name) => self.named(name, at),
            _ => Err(self.unexpected()),
        }
    }

    fn named(&mut self, name: Arc<str>, at: u32) -> Parsed {
        self.pos += 1;
        let reserved = RESERVED.iter().find(|word| **word == name.trim_start_matches('.'));
        let open = self.offset();
        let called = self.eat("(");
        let known = self.problems.len();
        let args = if called { self.args(")")? } else { Vec::new() };
        if let Some(word) = reserved {
            // What is wrong with the arguments does not matter then.
            self.problems.truncate(known);
            return self.report(at, format!("reserved identifier: {word}"));
        }
        if !called {
            return self.push(Expr::Ident(name), at);
        }
        match macros::global(self, &name, &args, open) {
            Ok(Some(expanded)) => Ok(expanded),
            Ok(None) => self.push(Expr::Call { function: name, target: None, args }, open),
            Err(problem) => self.refused(problem),
        }
    }

    /// A macro's arguments are wrong; only what is too deep ends it all.
    fn refused(&mut self, (at, message): Problem) -> Parsed {
        if at == NOWHERE { Err((at, message)) } else { self.report(at, message) }
    }

    /// Skips a comma that stands for nothing before a closing bracket.
    fn lone_comma(&mut self, close: &'static str) {
        if self.is(",") && self.tokens.get(self.pos + 1).is_some_and(|(token, _)| *token == Token::Op(close)) {
            self.pos += 1;
        }
    }

    fn list(&mut self) -> Parsed {
        let at = self.offset();
        self.expect("[")?;
        self.lone_comma("]");
        let mut elements = Vec::new();
        while !self.eat("]") {
            let optional = self.optional_mark()?;
            elements.push((self.expr()?, optional));
            if !self.is("]") {
                self.expect(",")?;
            }
        }
        self.push(Expr::List(elements), at)
    }

    fn map(&mut self) -> Parsed {
        let at = self.offset();
        self.expect("{")?;
        self.lone_comma("}");
        let mut entries = Vec::new();
        while !self.eat("}") {
            let optional = self.optional_mark()?;
            let key = self.expr()?;
            self.expect(":")?;
            let value = self.expr()?;
            entries.push(Entry { key, value, optional });
            if !self.is("}") {
                self.expect(",")?;
            }
        }
        self.push(Expr::Map(entries), at)
    }

    fn structure(&mut self, operand: Id) -> Parsed {
        let at = self.offset();
        self.expect("{")?;
        self.lone_comma("}");
        let name = self.ast.qualified_name(operand).unwrap_or_default();
        let mut fields = Vec::new();
        while !self.eat("}") {
            let optional = self.optional_mark()?;
            let field = match self.peek().clone() {
                Token::Ident(name) => name,
                Token::Quoted(name) if self.syntax.quoted_fields => name,
                _ => return Err(self.unexpected()),
            };
            self.pos += 1;
            let colon = self.offset();
            self.expect(":")?;
            fields.push((field, self.expr()?, optional, colon));
            if !self.is("}") {
                self.expect(",")?;
            }
        }
        self.push(Expr::Struct { name: name.into(), fields }, at)
    }
}

/// Calls `visit` with each direct child.
pub(crate) fn children(expr: &Expr, mut visit: impl FnMut(Id)) {
    match expr {
        Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select { operand, .. } | Expr::Has { operand, .. } => visit(*operand),
        Expr::Index { operand, index, .. } => {
            visit(*operand);
            visit(*index);
        }
        Expr::Call { target, args, .. } => {
            target.iter().for_each(|t| visit(*t));
            args.iter().for_each(|a| visit(*a));
        }
        Expr::And(terms) | Expr::Or(terms) => terms.iter().for_each(|t| visit(*t)),
        Expr::Conditional(a, b, c) => [a, b, c].into_iter().for_each(|t| visit(*t)),
        Expr::List(elements) => elements.iter().for_each(|(e, _)| visit(*e)),
        Expr::Map(entries) => entries.iter().for_each(|e| {
            visit(e.key);
            visit(e.value);
        }),
        Expr::Struct { fields, .. } => fields.iter().for_each(|(_, v, ..)| visit(*v)),
        Expr::Fold(fold) => {
            visit(fold.range);
            fold.filter.iter().for_each(|f| visit(*f));
            visit(fold.body);
        }
    }
}
