//! Tokens to syntax tree: precedence climbing, bounded in depth, one error at a time.

use std::sync::Arc;

use crate::ast::{Ast, Entry, Expr, Id, Literal};
use crate::escape::RESERVED;
use crate::lexer::{Problem, Token, tokens};
use crate::macros;

/// Longest expression, in code points.
pub(crate) const MAX_CODE_POINTS: usize = 100_000;
/// Deepest nesting of the source and of the tree. Everything that walks a tree recurses at most
/// this deep, so that a default thread stack is always enough.
pub(crate) const MAX_DEPTH: u16 = 250;

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
pub(crate) fn parse(source: &str, syntax: Syntax) -> Result<Ast, Problem> {
    let size = source.chars().take(MAX_CODE_POINTS + 1).count();
    if size > MAX_CODE_POINTS {
        return Err((
            0,
            format!(
                "expression code point size exceeds limit: size: {}, limit {MAX_CODE_POINTS}",
                source.chars().count()
            ),
        ));
    }
    let mut parser =
        Parser { tokens: tokens(source)?, pos: 0, nesting: 0, ast: Ast::default(), depths: Vec::new(), syntax };
    let root = parser.expr()?;
    if *parser.peek() != Token::End {
        return Err(parser.unexpected());
    }
    parser.ast.root = root;
    Ok(parser.ast)
}

pub(crate) struct Parser {
    tokens: Vec<(Token, u32)>,
    pos: usize,
    nesting: u16,
    pub(crate) ast: Ast,
    depths: Vec<u16>,
    pub(crate) syntax: Syntax,
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
        let shown = match self.peek() {
            Token::End => "<EOF>".to_owned(),
            Token::Op(op) => (*op).to_owned(),
            Token::Ident(name) | Token::Quoted(name) => name.to_string(),
            Token::Literal(Literal::Bool(b)) => b.to_string(),
            Token::Literal(_) | Token::IntMin => "literal".to_owned(),
        };
        (self.offset(), format!("Syntax error: mismatched input '{shown}'"))
    }

    fn too_deep(at: u32) -> Problem {
        (at, format!("expression recursion limit exceeded: {MAX_DEPTH}"))
    }

    /// Adds an expression whose children are there already.
    pub(crate) fn push(&mut self, expr: Expr, at: u32) -> Parsed {
        let mut depth = 0;
        children(&expr, |child| depth = depth.max(self.depths[child as usize]));
        if depth >= MAX_DEPTH {
            return Err(Self::too_deep(at));
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
            return Err(Self::too_deep(self.offset()));
        }
        let condition = self.or()?;
        let at = self.offset();
        let result = if self.eat("?") {
            let yes = self.or()?;
            self.expect(":")?;
            let no = self.expr()?;
            self.push(Expr::Conditional(condition, yes, no), at)
        } else {
            Ok(condition)
        };
        self.nesting -= 1;
        result
    }

    fn or(&mut self) -> Parsed {
        self.chain("||", Self::and, Expr::Or)
    }

    fn and(&mut self) -> Parsed {
        self.chain("&&", Self::relation, Expr::And)
    }

    fn chain(&mut self, op: &str, term: fn(&mut Self) -> Parsed, make: fn(Vec<Id>) -> Expr) -> Parsed {
        let first = term(self)?;
        let at = self.offset();
        if !self.is(op) {
            return Ok(first);
        }
        let mut terms = vec![first];
        while self.eat(op) {
            terms.push(term(self)?);
        }
        self.push(make(terms), at)
    }

    fn binary(&mut self, ops: &[(&str, &str)], term: fn(&mut Self) -> Parsed) -> Parsed {
        let mut left = term(self)?;
        'next: loop {
            let at = self.offset();
            for (op, function) in ops {
                if self.eat(op) {
                    let right = term(self)?;
                    left = self.call(function, vec![left, right], at)?;
                    continue 'next;
                }
            }
            return Ok(left);
        }
    }

    fn relation(&mut self) -> Parsed {
        const OPS: [(&str, &str); 7] =
            [("==", "_==_"), ("!=", "_!=_"), ("<=", "_<=_"), (">=", "_>=_"), ("<", "_<_"), (">", "_>_"), ("in", "@in")];
        self.binary(&OPS, Self::sum)
    }

    fn sum(&mut self) -> Parsed {
        self.binary(&[("+", "_+_"), ("-", "_-_")], Self::product)
    }

    fn product(&mut self) -> Parsed {
        self.binary(&[("*", "_*_"), ("/", "_/_"), ("%", "_%_")], Self::unary)
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
            Some(Token::Literal(Literal::Int(_) | Literal::Double(_)) | Token::IntMin)
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
                    Token::Quoted(_) => {
                        return Err((self.offset(), "unsupported syntax: '`'".into()));
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
            return Err((at, "unsupported syntax '?'".into()));
        }
        Ok(optional)
    }

    fn member_call(&mut self, target: Id, name: Arc<str>, args: Vec<Id>, at: u32) -> Parsed {
        if let Some(expanded) = macros::member(self, target, &name, &args, at)? {
            return Ok(expanded);
        }
        self.push(Expr::Call { function: name, target: Some(target), args }, at)
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
            Token::IntMin => Err((at, "invalid int literal".into())),
            Token::Op("-") => {
                self.pos += 1;
                let literal = match self.peek() {
                    Token::Literal(Literal::Int(v)) => Literal::Int(-*v),
                    Token::Literal(Literal::Double(v)) => Literal::Double(-*v),
                    Token::IntMin => Literal::Int(i64::MIN),
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
        if RESERVED.contains(&name.trim_start_matches('.')) {
            return Err((at, format!("reserved identifier: {}", name.trim_start_matches('.'))));
        }
        let open = self.offset();
        if self.eat("(") {
            let args = self.args(")")?;
            if let Some(expanded) = macros::global(self, &name, &args, open)? {
                return Ok(expanded);
            }
            return self.push(Expr::Call { function: name, target: None, args }, open);
        }
        self.push(Expr::Ident(name), at)
    }

    fn list(&mut self) -> Parsed {
        let at = self.offset();
        self.expect("[")?;
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
            self.expect(":")?;
            fields.push((field, self.expr()?, optional));
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
        Expr::Struct { fields, .. } => fields.iter().for_each(|(_, v, _)| visit(*v)),
        Expr::Fold(fold) => {
            visit(fold.range);
            fold.filter.iter().for_each(|f| visit(*f));
            visit(fold.body);
        }
    }
}
