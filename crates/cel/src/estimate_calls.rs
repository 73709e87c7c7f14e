//! Estimates of calls, the counterpart of `cost.rs`.

use crate::ast::{Expr, Id, Literal};
use crate::checker::OverloadRef;
use crate::cost::{CHECK, LIST, REGEX, STRING, scaled, selector_cost};
use crate::estimate::{CostEstimate, Estimate, Estimator, Fidelity, Size, Step, UNKNOWN};
use crate::library::Cost;
use crate::types::Type;

/// A call to estimate.
pub(crate) struct Call<'c, 'd> {
    pub function: &'c str,
    pub ids: &'c [Id],
    pub args: &'c [Estimate<'d>],
}

/// The cost of a call without its arguments, and the size of its result.
pub(crate) fn call_estimate<'d>(
    estimator: &Estimator<'d>,
    call: &Call<'_, 'd>,
    overload: &OverloadRef,
) -> (CostEstimate, Option<Size>) {
    let one = CostEstimate::fixed(1);
    let sound = estimator.fidelity == Fidelity::Sound;
    let size = |i: usize| call.args.get(i).map_or(UNKNOWN, Estimate::size_or_unknown);
    let literal = |i: usize| {
        call.ids.get(i).and_then(|id| match estimator.checked.ast.expr(*id) {
            Expr::Literal(Literal::Int(n)) => Some(*n),
            _ => None,
        })
    };
    match overload.group.cost {
        Cost::One | Cost::Index => (one, None),
        Cost::Scan => (size(0).scale(STRING), Some(Size { min: if sound { 0 } else { size(0).min }, ..size(0) })),
        Cost::Parse => (size(0).scale(STRING), None),
        Cost::ParseTwice => (size(0).scale(2.0 * STRING), None),
        Cost::Affix => (size(usize::from(!sound)).scale(STRING), None),
        Cost::Substring => (size(0).scale(STRING).multiply(size(1).scale(STRING)), None),
        Cost::Regex { found } => {
            let text = size(0).add(Size::fixed(1)).scale(STRING);
            let result = found.then_some(Size { min: 0, max: size(0).max.saturating_add(u64::from(sound)) });
            (text.multiply(size(1).scale(REGEX)), result)
        }
        Cost::Replace => (size(0).scale(2.0 * STRING), Some(replaced(size(0), size(1), size(2)))),
        Cost::Split => {
            let max = literal(2).map_or(size(0).max.saturating_add(u64::from(sound)), |n| n as u64);
            (size(0).scale(2.0 * STRING), Some(Size { min: 0, max }))
        }
        Cost::Join => {
            let result = joined(estimator, call);
            // Kubernetes charges twice of this at run time.
            (result.scale(if sound { 2.0 * STRING } else { STRING }), Some(result))
        }
        Cost::Quote => {
            let s = size(0);
            // Kubernetes lets an unknown size overflow.
            let max =
                if sound { s.max.saturating_mul(2).saturating_add(2) } else { s.max.wrapping_mul(2).wrapping_add(2) };
            let result = Size { min: s.min.saturating_add(2), max };
            (s.scale(STRING), Some(result))
        }
        Cost::FormatString => (size(0).scale(STRING), None),
        Cost::StringToBytes => {
            let s = size(0);
            let max = if sound { s.max.saturating_mul(4) } else { s.max.wrapping_mul(4) };
            (s.scale(STRING), Some(Size { min: s.min, max }))
        }
        Cost::BytesToString => {
            let s = size(0);
            (s.scale(STRING), Some(Size { min: s.min / 4, max: s.max }))
        }
        Cost::Comparison => comparison(call, overload, size(0), size(1), estimator),
        Cost::InList => match overload.id {
            "in_list" => (size(1), None),
            _ => (one, None),
        },
        Cost::Plus => match overload.id {
            "add_string" | "add_bytes" => {
                let result = size(0).add(size(1));
                (result.scale(STRING), Some(result))
            }
            "add_list" => (one, Some(size(0).add(size(1)))),
            _ => (one, None),
        },
        Cost::Traverse => (traversal(estimator, call, sound), None),
        Cost::ListOut if call.function == "slice" => {
            let start = literal(1).map_or(0, |n| n.max(0) as u64);
            let end = literal(2).map_or(size(0).max, |n| n.max(0) as u64);
            // What fails costs as much as a list of one.
            allocating(1.0, Size::fixed(if sound { end.max(1) } else { end.wrapping_sub(start) }))
        }
        Cost::ListOut => allocating(1.0, size(0)),
        Cost::Range => allocating(1.0, Size::fixed(literal(0).map_or(u64::MAX, |n| n.max(i64::from(sound)) as u64))),
        Cost::Flatten => {
            let depth = if call.args.len() > 1 { literal(1).map_or(u64::MAX, |n| n.max(0) as u64) } else { 1 };
            let (cost, result) = allocating(1.0, size(0));
            let deep = size(0).multiply(Size::fixed(depth)).add(CostEstimate::fixed(1 + LIST));
            (if depth == 1 { cost } else { deep }, if sound { None } else { result })
        }
        Cost::SelfCompare => {
            let textual = overload.id.contains("string") || overload.id.contains("bytes");
            let textual = textual || (sound && call.function == "distinct");
            let (cost, _) = allocating(if textual { 2.0 + STRING } else { 2.0 }, size(0).multiply(size(0)));
            // Kubernetes takes the square for the size of the result as well.
            (cost, Some(if sound { size(0) } else { size(0).multiply(size(0)) }))
        }
        Cost::Sets(factor) => (size(0).multiply(size(1)).scale(f64::from(factor)).add(one), None),
        Cost::Check => (CostEstimate::fixed(CHECK), None),
        Cost::Selector => (CostEstimate { min: selector_cost(size(1).min), max: selector_cost(size(1).max) }, None),
        Cost::ContainsIp | Cost::ContainsCidr => {
            let address = Size { min: if sound { 0 } else { 4 }, max: 16 };
            let mut cost = address.add(address).scale(STRING);
            if overload.group.cost == Cost::ContainsCidr {
                cost = cost.add(address.scale(STRING)).add(one);
            }
            if overload.id.ends_with("_string") {
                cost = cost.add(size(1).scale(STRING));
            }
            (cost, None)
        }
        Cost::Validate if sound => {
            let longest = crate::library::named_format::FORMATS.iter().map(|f| f.regex_size).max().unwrap_or(0);
            (size(1).add(Size::fixed(1)).scale(STRING).multiply(CostEstimate::fixed(scaled(longest, REGEX))), None)
        }
        Cost::Validate => (size(1).scale(STRING).scale(128.0 * REGEX), None),
    }
}

fn allocating(factor: f64, size: Size) -> (CostEstimate, Option<Size>) {
    (size.scale(factor).add(CostEstimate::fixed(1 + LIST)), Some(size))
}

fn comparison(
    call: &Call<'_, '_>,
    overload: &OverloadRef,
    a: Size,
    b: Size,
    estimator: &Estimator<'_>,
) -> (CostEstimate, Option<Size>) {
    let one = CostEstimate::fixed(1);
    let same_opaque = || {
        let ty = |i: usize| call.ids.get(i).map(|id| estimator.checked.ty(*id));
        match (ty(0), ty(1)) {
            (Some(Type::Opaque(a)), Some(Type::Opaque(b))) if a == b => Some(*a),
            _ => None,
        }
    };
    match overload.id {
        // The cost of comparing library types is fixed; URLs and formats are short texts.
        "equals" if same_opaque().is_some_and(|t| t != "kubernetes.URL" && t != "kubernetes.NamedFormat") => {
            (one, None)
        }
        "equals" if same_opaque() == Some("kubernetes.NamedFormat") => {
            (CostEstimate { min: 1, max: 64 }.scale(STRING), None)
        }
        "equals" if same_opaque() == Some("kubernetes.URL") => {
            let max = call.args.get(1).and_then(|e| e.size).map_or(1, |s| s.max);
            (CostEstimate { min: 1, max }.scale(STRING), None)
        }
        "equals" | "not_equals" | "order_string" | "order_bytes" => {
            let max = a.max.min(b.max);
            (CostEstimate { min: u64::from(max > 0), max }.scale(STRING), None)
        }
        _ => (one, None),
    }
}

fn replaced(text: Size, from: Size, to: Size) -> Size {
    let (mut count, mut kept) = (Size::fixed(0), Size::fixed(0));
    if from.min == 0 {
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if to.max <= from.min {
        kept.max = text.max;
    } else {
        count.max = text.max.div_ceil(from.min);
    }
    if from.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if from.max <= to.min {
        kept.min = text.min;
    } else {
        count.min = text.min.div_ceil(from.max);
    }
    let grown = count.multiply(to).add(kept);
    // Text that is not replaced stays, so the result is never bounded by replacements alone.
    Size { min: grown.min.min(grown.max), max: grown.max.max(text.max) }
}

/// Size of a list's elements.
fn element_size<'d>(estimator: &Estimator<'d>, call: &Call<'_, 'd>, sound: bool) -> Option<(Type, Size)> {
    let ty = estimator.checked.ty(*call.ids.first()?);
    let Type::List(element) = ty else { return None };
    let list = call.args.first()?;
    let declared = match list.path {
        crate::estimate::Path::None if !sound => None,
        path => estimator.declared_size(estimator.step(path, Step::Items), element),
    };
    let known = if sound { list.entries.map(|e| e.value) } else { None };
    let size = match (declared, known) {
        (Some(declared), _) => declared,
        (None, Some(known)) => known,
        (None, None) => UNKNOWN,
    };
    Some(((**element).clone(), size))
}

fn joined<'d>(estimator: &Estimator<'d>, call: &Call<'_, 'd>) -> Size {
    let sound = estimator.fidelity == Fidelity::Sound;
    let list = call.args.first().map_or(UNKNOWN, Estimate::size_or_unknown);
    let mut size = match element_size(estimator, call, sound) {
        Some((_, element)) => list.multiply(element),
        None if sound => UNKNOWN,
        None => Size::fixed(0),
    };
    if let Some(separator) = call.args.get(1) {
        let count = Size { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
        size = size.add(separator.size_or_unknown().multiply(count));
    }
    size
}

fn traversal<'d>(estimator: &Estimator<'d>, call: &Call<'_, 'd>, sound: bool) -> CostEstimate {
    let list = call.args.first().map_or(UNKNOWN, Estimate::size_or_unknown);
    match element_size(estimator, call, sound) {
        Some((Type::String | Type::Bytes, size)) => list.multiply(CostEstimate::fixed(1).add(size.scale(STRING))),
        Some((element, _)) if sound && !element.is_scalar() => UNKNOWN,
        Some(_) => list,
        None => list.scale(STRING),
    }
}
