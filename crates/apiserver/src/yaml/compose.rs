//! The first document of a YAML text as a value, made as go-yaml v2 makes it.

use std::collections::HashMap;

use machinery::field::quote;
use machinery::json::MAX_DEPTH;
use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{self, Event, Marker, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::scalar::{self, Kind};

/// How much text all aliases together may stand for. (Go shares it; here it is copied.)
const MAX_ALIASED_BYTES: usize = 16 << 20;
/// More keys that stand twice than this are not listed.
const MAX_TWICE: usize = 100;

/// What is wrong with a text, and where. None of the text itself: it may be a Secret's, and errors go into logs.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    what: String,
    line: usize,
    column: usize,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {} column {}: {}", self.line, self.column, self.what)
    }
}

impl From<ScanError> for Wrong {
    fn from(error: ScanError) -> Self {
        wrong(error.info(), *error.marker())
    }
}

fn wrong(what: impl Into<String>, place: Marker) -> Wrong {
    Wrong { what: what.into(), line: place.line(), column: place.col() + 1 }
}

/// The first document's value, and which keys stand twice in it, as Go names them: inner ones first, each at the line where
/// its value begins. What follows that document is not looked at.
pub fn compose(text: &str) -> Result<(Value, Vec<String>), Wrong> {
    let options = granit_parser::options! {
        emit_comments: false,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let events = Parser::new_from_str_with_options(text, options);
    let unended = (!text.ends_with(char::is_whitespace)).then_some(text.len());
    let (anchors, twice) = (HashMap::new(), Vec::new());
    let mut composer = Composer { events, unended, anchors, twice, all: Size::default(), aliased: Size::default() };
    loop {
        let (event, span) = composer.next()?;
        match event {
            Event::StreamStart | Event::DocumentStart(..) => {}
            Event::StreamEnd | Event::DocumentEnd => return Ok((Value::Null, Vec::new())),
            event => {
                let node = composer.node(event, span, 0)?;
                // What is wrong right behind the value is still part of the document.
                composer.next()?;
                return Ok((node.value, composer.twice));
            }
        }
    }
}

/// How much a value is: its nodes and the bytes of its texts.
#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
}

impl Size {
    fn plus(self, other: Size) -> Size {
        Size { nodes: self.nodes.saturating_add(other.nodes), bytes: self.bytes.saturating_add(other.bytes) }
    }

    fn minus(self, other: Size) -> Size {
        Size { nodes: self.nodes.saturating_sub(other.nodes), bytes: self.bytes.saturating_sub(other.bytes) }
    }
}

struct Anchored {
    value: Value,
    size: Size,
    /// How many levels it has.
    depth: usize,
}

struct Node {
    value: Value,
    depth: usize,
    /// Whether it is a `<<` that is not quoted.
    merges: bool,
}

struct Composer<'t> {
    events: Parser<'t, StrInput<'t>>,
    /// Where the text ends, if that is in the midst of a line.
    unended: Option<usize>,
    anchors: HashMap<usize, Anchored>,
    twice: Vec<String>,
    all: Size,
    aliased: Size,
}

impl<'t> Composer<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), Wrong> {
        match self.events.next() {
            Some(next) => Ok(next?),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// The value that begins with this event.
    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Node, Wrong> {
        let before = self.all;
        self.all.nodes += 1;
        let (node, anchor) = match event {
            Event::Alias(anchor) => return self.alias(anchor, span, depth),
            Event::Scalar(mut text, style, anchor, tag) => {
                // A block's last line ends as it does in the text: here, by the end of it.
                if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded)
                    && self.unended.is_some_and(|end| span.end.byte_offset() == Some(end))
                    && text.ends_with('\n')
                {
                    text.to_mut().pop();
                }
                self.all.bytes += text.len();
                let kind = match tag.as_deref() {
                    Some(tag) => Kind::of_tag(&full_name(tag)),
                    None if style == ScalarStyle::Plain => Kind::Open,
                    None => Kind::Text,
                };
                let value = scalar::value(&text, kind).map_err(|what| wrong(what, span.start))?;
                (Node { value, depth: 0, merges: kind == Kind::Open && text == "<<" }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => (self.list(span, depth)?, anchor),
            Event::MappingStart(_, anchor, _) => (self.map(span, depth)?, anchor),
            _ => return Err(wrong("did not find expected node content", span.start)),
        };
        if anchor != 0 {
            let size = self.all.minus(before);
            // It is copied, as it would be by an alias.
            self.copy(size, span)?;
            self.anchors.insert(anchor, Anchored { value: node.value.clone(), size, depth: node.depth });
        }
        Ok(node)
    }

    fn list(&mut self, start: Span, depth: usize) -> Result<Node, Wrong> {
        let depth = inner(depth, start)?;
        let (mut items, mut deepest) = (Vec::new(), 0);
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(Node { value: Value::Array(items), depth: deepest + 1, merges: false });
            }
            let item = self.node(event, span, depth)?;
            deepest = deepest.max(item.depth);
            items.push(item.value);
        }
    }

    fn map(&mut self, start: Span, depth: usize) -> Result<Node, Wrong> {
        let depth = inner(depth, start)?;
        let (mut fields, mut deepest) = (Map::new(), 0);
        loop {
            let (event, at) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(Node { value: Value::Object(fields), depth: deepest + 1, merges: false });
            }
            let key = self.node(event, at, depth)?;
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth)?;
            deepest = deepest.max(value.depth);
            if key.merges {
                self.merge(&mut fields, value.value, span)?;
                continue;
            }
            let quoted = key.value.is_string();
            let key = scalar::key(key.value).ok_or_else(|| wrong("invalid map key", at.start))?;
            self.set(&mut fields, key, value.value, quoted, span);
        }
    }

    /// Puts the fields of other maps into one. They take the place of what stood before, and are replaced by what follows.
    fn merge(&mut self, fields: &mut Map<String, Value>, value: Value, span: Span) -> Result<(), Wrong> {
        let maps = match value {
            Value::Array(maps) => maps,
            map => vec![map],
        };
        // The first ones have precedence.
        for map in maps.into_iter().rev() {
            let Value::Object(map) = map else {
                return Err(wrong("map merge requires map or sequence of maps as the value", span.start));
            };
            for (key, value) in map {
                self.set(fields, key, value, true, span);
            }
        }
        Ok(())
    }

    fn set(&mut self, fields: &mut Map<String, Value>, key: String, value: Value, quoted: bool, span: Span) {
        if fields.contains_key(&key) && self.twice.len() < MAX_TWICE {
            let name = if quoted { quote(&key) } else { key.clone() };
            self.twice.push(format!("line {}: key {name} already set in map", span.start.line()));
        }
        fields.insert(key, value);
    }

    fn alias(&mut self, anchor: usize, span: Span, depth: usize) -> Result<Node, Wrong> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err(wrong("the anchor's value contains itself", span.start));
        };
        if depth + anchored.depth > MAX_DEPTH {
            return Err(too_deep(span));
        }
        let (size, depth) = (anchored.size, anchored.depth);
        self.copy(size, span)?;
        let value = self.anchors.get(&anchor).map(|anchored| anchored.value.clone()).unwrap_or_default();
        Ok(Node { value, depth, merges: false })
    }

    /// Counts what is copied, before it is. A few lines can stand for more than fits in any memory.
    fn copy(&mut self, size: Size, span: Span) -> Result<(), Wrong> {
        self.all = self.all.plus(size);
        self.aliased = self.aliased.plus(size);
        // Go's bounds: much of a small text may be aliases, a tenth of a large one.
        let (low, high) = (400_000_f64, 4_000_000_f64);
        let (all, aliased) = (self.all.nodes as f64, self.aliased.nodes as f64);
        let allowed = 0.99 - 0.89 * ((all - low) / (high - low)).clamp(0.0, 1.0);
        let many = self.aliased.nodes > 100 && self.all.nodes > 1000 && aliased / all > allowed;
        if many || self.aliased.bytes > MAX_ALIASED_BYTES {
            return Err(wrong("document contains excessive aliasing", span.start));
        }
        Ok(())
    }
}

fn full_name(tag: &Tag) -> String {
    format!("{}{}", tag.handle(), tag.suffix())
}

fn inner(depth: usize, span: Span) -> Result<usize, Wrong> {
    if depth >= MAX_DEPTH { Err(too_deep(span)) } else { Ok(depth + 1) }
}

fn too_deep(span: Span) -> Wrong {
    wrong(format!("exceeded max depth of {MAX_DEPTH}"), span.start)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(text: &str) -> String {
        compose(text).unwrap_err().to_string()
    }

    /// Each as sigs.k8s.io/yaml 1.6.0 answers it.
    #[test]
    fn documents_are_what_go_takes_them_for() {
        for (text, expected) in [
            ("", json!(null)),
            ("# nothing", json!(null)),
            ("---\n---\na: 1", json!(null)),
            ("12", json!(12)),
            ("- 1\n- 2", json!([1, 2])),
            ("a: 1\n---\nb: 2", json!({"a": 1})),
            ("---\na: 1\n...\n---\nb: [", json!({"a": 1})),
            ("a: 1\n---\n][", json!({"a": 1})),
            ("a: |\n  012\nb: >-\n  1\n  2", json!({"a": "012\n", "b": "1 2"})),
            ("a: |\n  x", json!({"a": "x"})),
            ("a: |\n  x\n", json!({"a": "x\n"})),
            ("a: >\n  x\n  y", json!({"a": "x y"})),
            ("a: |\n  x\n# c", json!({"a": "x\n"})),
            ("a: |\n  x\nb: 1", json!({"a": "x\n", "b": 1})),
            ("a: ! 12\nb: '012'\nc: !!str 012\nd: 012", json!({"a": "12", "b": "012", "c": "012", "d": 10})),
            ("y: 1\n0644: 2", json!({"true": 1, "420": 2})),
            ("x: &a {k: 1, l: 2}\nz: {<<: *a, k: 3}", json!({"x": {"k": 1, "l": 2}, "z": {"k": 3, "l": 2}})),
            ("x: &a {k: 1, l: 2}\nz: {k: 3, <<: *a}", json!({"x": {"k": 1, "l": 2}, "z": {"k": 1, "l": 2}})),
            ("z: {<<: [{k: 1}, {k: 2, m: 3}]}", json!({"z": {"k": 1, "m": 3}})),
            ("z: {'<<': {a: 1}}", json!({"z": {"<<": {"a": 1}}})),
            ("a: &x 1\n*x : *x", json!({"a": 1, "1": 1})),
            ("{a, b: 1}", json!({"a": null, "b": 1})),
            ("a: !!set {x, z}", json!({"a": {"x": null, "z": null}})),
        ] {
            assert_eq!(compose(text).map(|(value, _)| value), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn keys_that_are_the_same_in_the_end_stand_twice() {
        let twice = |text| compose(text).unwrap().1;
        assert_eq!(twice("1: a\n0x1: b"), ["line 2: key 1 already set in map"]);
        assert_eq!(twice("x: &a {k: 1}\nz: {<<: *a, k: 3}"), ["line 2: key \"k\" already set in map"]);
    }

    #[test]
    fn a_few_lines_cannot_stand_for_everything() {
        let laughs: String = (1..10)
            .map(|level| format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 10].join(", ")))
            .collect();
        assert!(said(&format!("a0: &a0 [lol]\n{laughs}")).ends_with("document contains excessive aliasing"));
        let large = format!("a: &a {}\nb: [{}]", "x".repeat(1 << 20), vec!["*a"; 20].join(", "));
        assert!(said(&large).ends_with("document contains excessive aliasing"));
        assert_eq!(said("a: &a [*a]"), "line 1 column 8: the anchor's value contains itself");
        // Few is not excessive.
        let few = format!("a: &a [{}]\nb: [*a, *a, *a]", vec!["1"; 100].join(", "));
        assert!(compose(&few).is_ok());
    }

    #[test]
    fn values_are_as_deep_as_in_json() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(compose(&nested(MAX_DEPTH)).is_ok());
        assert!(compose(&nested(MAX_DEPTH + 1)).is_err());
        assert!(compose(&nested(100_000)).is_err());
        assert!(compose(&"- ".repeat(100_000)).is_err());
        let half = MAX_DEPTH / 2;
        let lengthened =
            |depth: usize| format!("a: &a {}\nb: {}*a {}", nested(half), "[".repeat(depth), "]".repeat(depth));
        assert!(compose(&lengthened(half - 1)).is_ok());
        assert!(said(&lengthened(half)).ends_with("exceeded max depth of 256"));
    }
}
