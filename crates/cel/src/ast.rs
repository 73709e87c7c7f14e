//! The syntax tree: an arena of expressions, macros already recognised.

use std::sync::Arc;

/// Index of an expression in its [`Ast`].
pub(crate) type Id = u32;

/// A literal of the source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// What a macro makes of the elements of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    /// `map` and `transformList`.
    Map,
    Filter,
    TransformMap,
    TransformMapEntry,
    SortBy,
    /// `range` is an optional, `body` computes a new value.
    OptMap,
    /// `range` is an optional, `body` computes a new optional.
    OptFlatMap,
    /// `cel.bind`: `range` is the value bound.
    Bind,
}

/// A macro with variables of its own. Macros are kept whole rather than expanded into a generic
/// loop: evaluation is faster, messages stay those of the source, and an expression cannot grow
/// (cel-go's `optMap` copies its target, so a chain of n doubles n times).
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub kind: FoldKind,
    pub range: Id,
    pub var: Arc<str>,
    pub var2: Option<Arc<str>>,
    pub filter: Option<Id>,
    pub body: Id,
}

/// One entry of a map literal.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub key: Id,
    pub value: Id,
    pub optional: bool,
}

/// One expression.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Literal(Literal),
    /// A leading dot is kept in the name.
    Ident(Arc<str>),
    Select {
        operand: Id,
        field: Arc<str>,
        optional: bool,
    },
    Has {
        operand: Id,
        field: Arc<str>,
    },
    Index {
        operand: Id,
        index: Id,
        optional: bool,
    },
    /// Function or operator (`_+_`, `!_`, `-_`, `@in` …).
    Call {
        function: Arc<str>,
        target: Option<Id>,
        args: Vec<Id>,
    },
    And(Vec<Id>),
    Or(Vec<Id>),
    Conditional(Id, Id, Id),
    List(Vec<(Id, bool)>),
    Map(Vec<Entry>),
    Struct {
        name: Arc<str>,
        /// Name, value, whether it is left out if the value is an absent optional, and where its colon stands.
        fields: Vec<(Arc<str>, Id, bool, u32)>,
    },
    Fold(Fold),
}

/// A parsed expression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ast {
    pub exprs: Vec<Expr>,
    /// Offset in code points, per expression.
    pub positions: Vec<u32>,
    pub root: Id,
}

impl Ast {
    pub fn expr(&self, id: Id) -> &Expr {
        &self.exprs[id as usize]
    }

    pub fn position(&self, id: Id) -> u32 {
        self.positions[id as usize]
    }

    /// `a.b.c` as one name if the expression is a plain chain of names.
    pub fn qualified_name(&self, id: Id) -> Option<String> {
        match self.expr(id) {
            Expr::Ident(name) => Some(name.to_string()),
            Expr::Select { operand, field, optional: false } => {
                let mut name = self.qualified_name(*operand)?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }
}
