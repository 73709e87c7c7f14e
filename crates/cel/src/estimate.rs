//! Cost estimates: what evaluation can cost at most, from the bounds of schemas.

use std::sync::{Arc, LazyLock};

use crate::ast::{Expr, Fold, FoldKind, Id, Literal};
use crate::checker::{Checked, OverloadRef, Reference};
use crate::cost::{LIST, MAP};
use crate::decl::{DeclType, Kind, MAX_REQUEST_SIZE};
use crate::estimate_calls::{Call, call_estimate};
use crate::types::Type;
use crate::value::str_size;

/// How the estimate is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fidelity {
    /// As kube-apiserver does, number for number: decides what is refused there. In some corners
    /// it is lower than what evaluation really costs (numbers compare for nothing, `startsWith`
    /// is charged by its prefix, joined lists and flattened ones are taken for smaller).
    Kubernetes,
    /// Never lower than what evaluation costs.
    Sound,
}

/// Bounds of a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostEstimate {
    /// At least this.
    pub min: u64,
    /// At most this; `u64::MAX` if there is no bound.
    pub max: u64,
}

impl CostEstimate {
    pub(crate) fn fixed(cost: u64) -> Self {
        Self { min: cost, max: cost }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(crate) fn multiply(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    pub(crate) fn scale(self, factor: f64) -> Self {
        Self { min: crate::cost::scaled(self.min, factor), max: crate::cost::scaled(self.max, factor) }
    }
}

/// Bounds of a size.
pub(crate) type Size = CostEstimate;

pub(crate) const UNKNOWN: Size = Size { min: 0, max: u64::MAX };

/// Sizes of a container's elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entries {
    pub key: Size,
    pub value: Size,
}

/// The keys of maps, as Kubernetes sees them: of no size.
static KEYS: LazyLock<DeclType> = LazyLock::new(|| DeclType::plain(Type::String).with_max_elements(0));

/// Where in the schema a value comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'d> {
    /// Not from a variable.
    None,
    /// From there, if the schema knows the place.
    At(Option<&'d DeclType>),
}

/// What is known of an expression.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Estimate<'d> {
    pub cost: CostEstimate,
    /// Its size, if known.
    pub size: Option<Size>,
    pub entries: Option<Entries>,
    pub path: Path<'d>,
}

impl Estimate<'_> {
    pub fn size_or_unknown(&self) -> Size {
        self.size.unwrap_or(UNKNOWN)
    }
}

struct Local<'d> {
    name: Arc<str>,
    path: Path<'d>,
    size: Option<Size>,
    entries: Option<Entries>,
}

pub(crate) struct Estimator<'d> {
    pub checked: &'d Checked,
    decls: &'d [Option<Arc<DeclType>>],
    root: Option<&'d DeclType>,
    pub fidelity: Fidelity,
    locals: Vec<Local<'d>>,
}

/// Estimates a checked expression.
///
/// `root` is the one schema that Kubernetes knows, that of `self`; it takes every variable for it.
pub(crate) fn estimate(
    checked: &Checked,
    decls: &[Option<Arc<DeclType>>],
    root: Option<&DeclType>,
    fidelity: Fidelity,
) -> CostEstimate {
    let mut estimator = Estimator { checked, decls, root, fidelity, locals: Vec::new() };
    estimator.expr(checked.ast.root).cost
}

impl<'d> Estimator<'d> {
    fn sound(&self) -> bool {
        self.fidelity == Fidelity::Sound
    }

    /// A value one step further in the schema.
    pub fn step(&self, from: Path<'d>, how: Step<'_>) -> Path<'d> {
        match from {
            // Kubernetes drops the first step, whatever it is, and starts at the root.
            Path::None => Path::At(if self.sound() { None } else { self.root }),
            Path::At(decl) => Path::At(decl.and_then(|decl| match (how, decl.kind()) {
                (Step::Items, Kind::List(element, _)) => Some(&**element),
                (Step::Values | Step::Items, Kind::Map(value)) => Some(&**value),
                (Step::Values, Kind::List(element, _)) => Some(&**element),
                (Step::Keys, Kind::Map(_)) if !self.sound() => Some(&*KEYS),
                (Step::Field(name), _) => decl.field(name).map(|f| &*f.decl),
                _ => None,
            })),
        }
    }

    /// The size that schema and type give a value.
    pub fn declared_size(&self, path: Path<'d>, ty: &Type) -> Option<Size> {
        let by_path = match path {
            Path::At(Some(decl)) => Some(match decl.kind() {
                Kind::Object(_) | Kind::Dyn | Kind::IntOrString | Kind::Plain(_) if self.sound() => {
                    Size { min: 0, max: MAX_REQUEST_SIZE }
                }
                _ => Size { min: 0, max: decl.max_elements() },
            }),
            _ => None,
        };
        let scalar = ty.is_scalar().then_some(Size::fixed(1));
        if self.sound() { scalar.or(by_path) } else { by_path.or(scalar) }
    }

    fn known(&self, id: Id, cost: CostEstimate, size: Option<Size>, path: Path<'d>) -> Estimate<'d> {
        let size = size.or_else(|| self.declared_size(path, self.checked.ty(id)));
        Estimate { cost, size, entries: None, path }
    }

    pub fn expr(&mut self, id: Id) -> Estimate<'d> {
        let checked = self.checked;
        match checked.reference(id) {
            Reference::Global(n) => {
                let decl = self.decls.get(*n as usize).and_then(|d| d.as_deref());
                let decl = if self.sound() { decl } else { self.root };
                return self.known(id, CostEstimate::fixed(1), None, Path::At(decl));
            }
            Reference::Type(_) => {
                // Kubernetes takes the name of a type for a variable.
                let path = if self.sound() { Path::None } else { Path::At(self.root) };
                let size = self.sound().then_some(Size::fixed(1));
                return self.known(id, CostEstimate::fixed(1), size, path);
            }
            _ => {}
        }
        match checked.ast.expr(id) {
            Expr::Literal(literal) => {
                self.known(id, CostEstimate::fixed(0), Some(Size::fixed(literal_size(literal))), Path::None)
            }
            Expr::Ident(name) => self.local(id, name),
            Expr::Select { operand, field, optional } => self.select(id, *operand, field, *optional),
            Expr::Has { operand, .. } => {
                let cost = self.expr(*operand).cost;
                self.known(id, cost, None, Path::None)
            }
            Expr::Index { operand, index, .. } => {
                let mut found = self.call(id, None, &[*operand, *index]);
                if self.sound() && is_computed(checked.ast.expr(*operand)) {
                    found.cost = found.cost.add(CostEstimate { min: 0, max: 1 });
                }
                found
            }
            Expr::Call { target, args, .. } => {
                let detached = matches!(checked.reference(id), Reference::Call { detached: true, .. });
                self.call(id, target.filter(|_| !detached), args)
            }
            Expr::And(terms) | Expr::Or(terms) => {
                let costs: Vec<CostEstimate> = terms.iter().map(|t| self.expr(*t).cost).collect();
                let max = costs.iter().fold(0u64, |sum, c| sum.saturating_add(c.max));
                let min = costs.first().map_or(0, |c| c.min);
                self.known(id, CostEstimate { min, max }, None, Path::None)
            }
            Expr::Conditional(condition, yes, no) => {
                let condition = self.expr(*condition);
                let (a, b) = (self.expr(*yes), self.expr(*no));
                let size = a.size_or_unknown().union(b.size_or_unknown());
                let entries = union_entries(a.entries, b.entries);
                let cost = condition.cost.add(a.cost.union(b.cost));
                Estimate { cost, size: Some(size), entries, path: Path::None }
            }
            Expr::List(elements) => {
                let mut cost = CostEstimate::fixed(LIST);
                let mut value: Option<Size> = None;
                for (element, _) in elements {
                    let e = self.expr(*element);
                    cost = cost.add(e.cost);
                    let size = e.size_or_unknown();
                    value = Some(value.map_or(size, |v| v.union(size)));
                }
                let entries = Some(Entries { key: Size::fixed(1), value: value.unwrap_or(Size::fixed(0)) });
                Estimate { cost, size: Some(Size::fixed(elements.len() as u64)), entries, path: Path::None }
            }
            Expr::Map(map) => {
                let mut cost = CostEstimate::fixed(MAP);
                let mut entries: Option<Entries> = None;
                for entry in map {
                    let (k, v) = (self.expr(entry.key), self.expr(entry.value));
                    cost = cost.add(k.cost).add(v.cost);
                    let new = Entries { key: k.size_or_unknown(), value: v.size_or_unknown() };
                    entries =
                        Some(entries.map_or(new, |old| Entries {
                            key: old.key.union(new.key),
                            value: old.value.union(new.value),
                        }));
                }
                let entries = entries.or(Some(Entries { key: Size::fixed(0), value: Size::fixed(0) }));
                Estimate { cost, size: Some(Size::fixed(map.len() as u64)), entries, path: Path::None }
            }
            Expr::Struct { .. } => self.known(id, CostEstimate::fixed(40), None, Path::None),
            Expr::Fold(fold) => self.fold(id, fold),
        }
    }

    fn local(&mut self, id: Id, name: &Arc<str>) -> Estimate<'d> {
        let Some(local) = self.locals.iter().rev().find(|l| l.name == *name) else {
            return self.known(id, CostEstimate::fixed(1), None, Path::None);
        };
        let (path, size, entries) = (local.path, local.size, local.entries);
        let declared = self.declared_size(path, self.checked.ty(id)).or(size);
        Estimate { cost: CostEstimate::fixed(1), size: declared, entries, path }
    }

    fn select(&mut self, id: Id, operand: Id, field: &str, optional: bool) -> Estimate<'d> {
        let mut from = self.expr(operand);
        if self.sound() && is_computed(self.checked.ast.expr(operand)) {
            from.cost = from.cost.add(CostEstimate { min: 0, max: 1 });
        }
        if optional {
            // A call in cel-go: what comes out of it has no place in the schema.
            return self.known(id, from.cost.add(CostEstimate::fixed(1)), None, Path::None);
        }
        let charged = match self.checked.ty(operand) {
            Type::Map(_) | Type::Object(_) => 1,
            // cel-go charges nothing for fields of dynamic and optional values.
            _ if !self.sound() => 0,
            _ => 1,
        };
        let path = self.step(from.path, Step::Field(field));
        self.known(id, from.cost.add(CostEstimate::fixed(charged)), None, path)
    }

    fn call(&mut self, id: Id, target: Option<Id>, args: &[Id]) -> Estimate<'d> {
        let checked = self.checked;
        let Reference::Call { function, overloads, .. } = checked.reference(id) else {
            return self.known(id, CostEstimate::fixed(0), None, Path::None);
        };
        let ids: Vec<Id> = target.into_iter().chain(args.iter().copied()).collect();
        let estimates: Vec<Estimate<'d>> = ids.iter().map(|a| self.expr(*a)).collect();
        let arg_cost = estimates.iter().fold(CostEstimate::fixed(0), |sum, e| sum.add(e.cost));
        if &**function == "dyn"
            && let [one] = estimates[..]
        {
            return Estimate { cost: one.cost.add(CostEstimate::fixed(1)), path: Path::None, ..one };
        }
        let call = Call { function, ids: &ids, args: &estimates };
        let mut cost: Option<CostEstimate> = None;
        let mut size: Option<Size> = None;
        let mut path = Path::None;
        for overload in overloads {
            let (c, s) = call_estimate(self, &call, overload);
            cost = Some(cost.map_or(c, |known| known.union(c)));
            if let Some(s) = s {
                size = Some(size.map_or(s, |known| known.union(s)));
            }
            let step = index_step(overload);
            if let (Some(step), Some(operand)) = (step, estimates.first()) {
                size = operand.entries.map(|e| e.value);
                path = self.step(operand.path, step);
            }
        }
        let cost = cost.unwrap_or(CostEstimate::fixed(1)).add(arg_cost);
        let mut result = self.known(id, cost, size, path);
        if let ("_+_", [a, b]) = (&**function, &estimates[..]) {
            result.entries = union_entries(a.entries, b.entries);
        }
        result
    }

    fn with_locals<T>(&mut self, locals: Vec<Local<'d>>, f: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.locals.len();
        self.locals.extend(locals);
        let result = f(self);
        self.locals.truncate(outer);
        result
    }

    /// The variables that a macro binds to the elements of its range.
    fn iteration(&self, fold: &Fold, range: &Estimate<'d>) -> Vec<Local<'d>> {
        let is_list = matches!(self.checked.ty(fold.range), Type::List(_));
        let items = self.step(range.path, if is_list { Step::Items } else { Step::Values });
        let value_size = range.entries.map(|e| e.value);
        let key_size = range.entries.map(|e| e.key);
        let keys = self.step(range.path, if is_list { Step::Indexes } else { Step::Keys });
        let key = |name: &Arc<str>| Local { name: name.clone(), path: keys, size: key_size, entries: None };
        let value = |name: &Arc<str>| Local { name: name.clone(), path: items, size: value_size, entries: None };
        match &fold.var2 {
            Some(second) => vec![key(&fold.var), value(second)],
            None if is_list => vec![value(&fold.var)],
            None => vec![key(&fold.var)],
        }
    }

    fn fold(&mut self, id: Id, fold: &Fold) -> Estimate<'d> {
        let fixed = CostEstimate::fixed;
        let range = self.expr(fold.range);
        match fold.kind {
            FoldKind::Bind => {
                let local =
                    Local { name: fold.var.clone(), path: range.path, size: range.size, entries: range.entries };
                let body = self.with_locals(vec![local], |s| s.expr(fold.body));
                return Estimate { cost: range.cost.add(fixed(LIST)).add(body.cost), path: Path::None, ..body };
            }
            FoldKind::OptMap | FoldKind::OptFlatMap => {
                let local = Local { name: fold.var.clone(), path: Path::None, size: None, entries: None };
                let body = self.with_locals(vec![local], |s| s.expr(fold.body));
                let wrap = u64::from(fold.kind == FoldKind::OptMap);
                let some = fixed(LIST + 1 + wrap).add(range.cost).add(body.cost);
                let cost = range.cost.add(fixed(1)).add(some.union(fixed(1)));
                return self.known(id, cost, None, Path::None);
            }
            _ => {}
        }
        let locals = self.iteration(fold, &range);
        let (filter, body) = self.with_locals(locals, |s| (fold.filter.map(|f| s.expr(f).cost), s.expr(fold.body)));
        let pred = body.cost;
        // (before the loop, each step, after it)
        let (before, step, after) = match fold.kind {
            FoldKind::All => (0, CostEstimate { min: 3, max: pred.max.saturating_add(3) }, 1),
            FoldKind::Exists => (0, CostEstimate { min: 4, max: pred.max.saturating_add(4) }, 1),
            FoldKind::ExistsOne => (0, pred.add(CostEstimate { min: 1, max: 2 }), 2),
            FoldKind::Filter => (LIST, pred.add(CostEstimate { min: 1, max: 3 + LIST }), 1),
            FoldKind::TransformMap => (MAP, pred.add(fixed(3)), 1),
            FoldKind::TransformMapEntry => (MAP, pred.add(fixed(2)), 1),
            _ => (LIST, pred.add(fixed(2 + LIST)), 1),
        };
        let step = match filter {
            Some(filter) => filter.add(step.union(fixed(1))),
            None => step,
        };
        let count = range.size_or_unknown();
        let mut cost = range.cost.add(fixed(before + after)).add(count.multiply(step));
        let mut size = Some(count);
        let mut entries = None;
        match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => size = Some(Size::fixed(1)),
            FoldKind::TransformMap => {}
            FoldKind::TransformMapEntry if self.sound() => size = None,
            FoldKind::TransformMapEntry => {}
            FoldKind::SortBy => {
                let textual = matches!(self.checked.ty(fold.body), Type::String | Type::Bytes | Type::Dyn);
                let factor = if textual { 2.1 } else { 2.0 };
                cost = cost.add(count.multiply(count).scale(factor)).add(fixed(LIST + 2 + 1 + LIST));
                // Kubernetes takes the square for the size of the result as well.
                size = Some(if self.sound() { count } else { count.multiply(count) });
            }
            FoldKind::Filter => {
                let item = self.iteration(fold, &range);
                let element = item.first().map(|l| {
                    let ty = element_type(self.checked.ty(id));
                    self.declared_size(l.path, &ty).or(l.size).unwrap_or(UNKNOWN)
                });
                entries = element.map(|value| Entries { key: Size::fixed(1), value: Size { min: 0, ..value } });
                size = Some(Size { min: if self.sound() { 0 } else { count.min }, max: count.max });
            }
            _ => {
                let value = Size { min: 0, ..body.size_or_unknown() };
                entries = Some(Entries { key: Size::fixed(1), value });
            }
        }
        let mut result = self.known(id, cost, size, Path::None);
        result.entries = entries;
        result
    }
}

/// Whether fields are read from something that was computed rather than found in a variable.
/// Kubernetes charges one for that, which its estimate does not know.
pub(crate) fn is_computed(operand: &Expr) -> bool {
    !matches!(operand, Expr::Ident(_) | Expr::Select { .. } | Expr::Index { .. } | Expr::Conditional(..))
}

fn element_type(t: &Type) -> Type {
    match t {
        Type::List(e) => (**e).clone(),
        _ => Type::Dyn,
    }
}

/// One step into a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'n> {
    Field(&'n str),
    Items,
    Values,
    Keys,
    Indexes,
}

fn index_step(overload: &OverloadRef) -> Option<Step<'static>> {
    match overload.id {
        "index_list" => Some(Step::Items),
        "index_map" => Some(Step::Values),
        _ => None,
    }
}

fn union_entries(a: Option<Entries>, b: Option<Entries>) -> Option<Entries> {
    let (a, b) = (a?, b?);
    Some(Entries { key: a.key.union(b.key), value: a.value.union(b.value) })
}

fn literal_size(literal: &Literal) -> u64 {
    match literal {
        Literal::String(s) => str_size(s),
        Literal::Bytes(b) => b.len() as u64,
        _ => 1,
    }
}
