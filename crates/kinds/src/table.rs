//! The types of all built-in kinds, read from the generated table `data/types.txt` when first needed.
//!
//! The table is written by `cargo xtask generate` and tested as a whole, so a malformed line is a bug, not an input error.
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use conductor_machinery::schema::{Field, Id, ListKind, Merge, Node, Opaque, Rules, Schema, Shape, Text, Types};
use serde_json::Value;

static TABLE: LazyLock<Table> = LazyLock::new(|| Table::read(include_str!("../data/types.txt")));

/// Kinds that exist in every group version.
const EVERYWHERE: &[&str] =
    &["CreateOptions", "DeleteOptions", "GetOptions", "ListOptions", "PatchOptions", "UpdateOptions", "WatchEvent"];

/// The types of all built-in kinds.
pub fn types() -> &'static Types {
    &TABLE.types
}

/// The type of a kind, also of those that are no resources: `DeleteOptions`, `Scale`, `Status`.
pub fn schema_of(group: &str, version: &str, kind: &str) -> Option<Schema<'static>> {
    let (group, version) = if EVERYWHERE.contains(&kind) { ("", "v1") } else { (group, version) };
    let id = *TABLE.kinds.get(group)?.get(version)?.get(kind)?;
    Some(types().schema(id))
}

/// A type by its full name: `io.k8s.api.core.v1.PodSpec`.
pub fn type_named(name: &str) -> Option<Schema<'static>> {
    let (package, base) = name.rsplit_once('.')?;
    let id = *TABLE.names.get(package)?.get(base)?;
    Some(types().schema(id))
}

/// The full name of a type, as OpenAPI has it; only objects and types that Kubernetes names have one.
pub fn type_name(id: Id) -> Option<&'static str> {
    types().schema(id).name()
}

/// All kinds of the table: group, version, kind and type, sorted. Kinds of every group version are listed under `v1`.
pub fn kinds() -> impl Iterator<Item = (&'static str, &'static str, &'static str, Id)> {
    TABLE.kinds.iter().flat_map(|(group, versions)| {
        versions
            .iter()
            .flat_map(move |(version, kinds)| kinds.iter().map(move |(kind, id)| (*group, *version, *kind, *id)))
    })
}

struct Table {
    types: Types,
    kinds: BTreeMap<&'static str, BTreeMap<&'static str, BTreeMap<&'static str, Id>>>,
    /// Types by package and name.
    names: HashMap<&'static str, HashMap<&'static str, Id>>,
}

impl Table {
    fn read(text: &'static str) -> Table {
        let mut reader = Reader { types: Types::new(), packages: HashMap::new(), written: HashMap::new() };
        reader.name_types(text);
        reader.simple_types(text);
        let mut lines = text.lines().filter(|line| !line.starts_with('#')).peekable();
        let mut kinds: BTreeMap<_, BTreeMap<_, BTreeMap<_, _>>> = BTreeMap::new();
        while let Some(line) = lines.next() {
            let words: Vec<&'static str> = line.split(' ').collect();
            match *words {
                ["k", group_version, kind, name] => {
                    let (group, version) = group_version.split_once('/').expect("a group and a version");
                    let group = if group == "core" { "" } else { group };
                    let id = reader.id(name);
                    kinds.entry(group).or_default().entry(version).or_default().insert(kind, id);
                }
                ["o", name, ref flags @ ..] => {
                    let mut fields = Vec::new();
                    while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
                        let order = u16::try_from(fields.len()).expect("fewer than 2^16 fields");
                        fields.push(reader.field(line, order));
                    }
                    fields.sort_by(|a, b| a.name.cmp(&b.name));
                    fields.shrink_to_fit();
                    reader.set(name, Shape::Object(fields), |node| node.atomic = flags.contains(&"a"));
                }
                _ => {}
            }
        }
        let mut names: HashMap<_, HashMap<_, _>> = HashMap::new();
        for (short, id) in &reader.written {
            if let Some((package, base)) = short.rsplit_once('.')
                && let Some(package) = reader.packages.get(package)
                && !short.starts_with(['[', '{'])
            {
                names.entry(*package).or_default().insert(base, *id);
            }
        }
        Table { types: reader.types, kinds, names }
    }
}

struct Reader {
    types: Types,
    /// Full names of packages by their short ones.
    packages: HashMap<&'static str, &'static str>,
    /// Types by how they are written in the table, lists with what tells their items apart.
    written: HashMap<&'static str, Id>,
}

impl Reader {
    /// Gives every named type its number, so that types may refer to each other in any order.
    fn name_types(&mut self, text: &'static str) {
        for line in text.lines() {
            let mut words = line.split(' ');
            match (words.next(), words.next(), words.next()) {
                (Some("p"), Some(short), Some(long)) => {
                    self.packages.insert(short, long);
                }
                (Some("o" | "s" | "m" | "l"), Some(name), _) => {
                    let id = self.types.add(Node::new(Shape::Any));
                    self.written.insert(name, id);
                }
                _ => {}
            }
        }
    }

    /// Strings, maps and lists with a name of their own: before the objects, whose fields may have variants of them.
    fn simple_types(&mut self, text: &'static str) {
        for line in text.lines() {
            let words: Vec<&'static str> = line.split(' ').collect();
            match *words {
                ["s", name, ref values @ ..] => {
                    // Values may have spaces: `client auth`.
                    let rules = (!values.is_empty()).then(|| {
                        let values = values.join(" ").split(',').map(Value::from).collect();
                        Box::new(Rules { enumeration: Some(values), ..Rules::default() })
                    });
                    self.set(name, Shape::String(Text::Plain), |node| node.rules = rules);
                }
                ["m", name, of] => {
                    let shape = Shape::Map(self.id(of));
                    self.set(name, shape, |_| {});
                }
                ["l", name, of, ref flags @ ..] => {
                    let shape = Shape::List { items: self.id(of), list: ListKind::Atomic };
                    self.set(name, shape, |node| node.wrapped = flags.contains(&"w"));
                }
                _ => {}
            }
        }
    }

    fn set(&mut self, name: &'static str, shape: Shape, change: impl FnOnce(&mut Node)) {
        let (short, base) = name.rsplit_once('.').expect("a package and a name");
        let mut node = Node::new(shape);
        node.name = Some(format!("{}.{base}", self.packages[short]).into());
        change(&mut node);
        self.types.replace(self.written[name], node);
    }

    fn add(&mut self, written: &'static str, shape: Shape, opaque: Opaque) -> Id {
        let id = self.types.add(Node { opaque, ..Node::new(shape) });
        self.written.insert(written, id);
        id
    }

    /// The number of a type as it is written: `[]core.v1.Volume`.
    fn id(&mut self, written: &'static str) -> Id {
        if let Some(id) = self.written.get(written) {
            return *id;
        }
        if let Some(of) = written.strip_prefix("[]") {
            let items = self.id(of);
            return self.add(written, Shape::List { items, list: ListKind::Atomic }, Opaque::Plain);
        }
        if let Some(of) = written.strip_prefix("{}") {
            let values = self.id(of);
            return self.add(written, Shape::Map(values), Opaque::Plain);
        }
        let schema = |reader: &mut Self| reader.written["apiextensions.v1.JSONSchemaProps"];
        let (shape, opaque) = match written {
            "string" => (Shape::String(Text::Plain), Opaque::Plain),
            "int32" => (Shape::Integer { bits: 32 }, Opaque::Plain),
            "int64" => (Shape::Integer { bits: 64 }, Opaque::Plain),
            "float64" => (Shape::Number, Opaque::Plain),
            "bool" => (Shape::Boolean, Opaque::Plain),
            "bytes" => (Shape::String(Text::Bytes), Opaque::Plain),
            "quantity" => (Shape::String(Text::Quantity), Opaque::Plain),
            "time" => (Shape::String(Text::Time), Opaque::Plain),
            "microtime" => (Shape::String(Text::MicroTime), Opaque::Plain),
            "duration" => (Shape::String(Text::Duration), Opaque::Plain),
            "int-or-string" => (Shape::IntOrString, Opaque::Plain),
            "any" => (Shape::Any, Opaque::Plain),
            "raw" => (Shape::Any, Opaque::Raw),
            "json" => (Shape::Any, Opaque::Json),
            "fields" => (Shape::Any, Opaque::Fields),
            "schema-or-bool" => (Shape::Any, Opaque::SchemaOrBool(schema(self))),
            "schema-or-list" => (Shape::Any, Opaque::SchemaOrList(schema(self))),
            "schema-or-strings" => (Shape::Any, Opaque::SchemaOrStrings(schema(self))),
            _ => panic!("the table has no type {written}"),
        };
        self.add(written, shape, opaque)
    }

    /// A field: ` name type proto flags attributes`.
    fn field(&mut self, line: &'static str, order: u16) -> Field {
        let mut words = line[1..].split(' ');
        let mut next = || words.next().expect("four words");
        let (name, written, proto, flags) = (next(), next(), next(), next());
        let mut field = Field {
            name: name.into(),
            schema: self.id(written),
            order,
            required: flags.contains('r'),
            omit_empty: flags.contains('e'),
            omit_zero: flags.contains('z'),
            pointer: flags.contains('p'),
            default: None,
            merge: Merge::default(),
            proto: proto.parse().expect("a protobuf number"),
            inline: Box::default(),
            embedded: None,
        };
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("k", keys) => self.keyed(&mut field, ListKind::Map(keys.split(',').map(Box::from).collect())),
                ("set", _) => self.keyed(&mut field, ListKind::Set),
                ("m", key) => {
                    field.merge.merge = true;
                    field.merge.key = Some(key).filter(|key| !key.is_empty()).map(Box::from);
                }
                ("replace", _) => field.merge.replace = true,
                ("t", _) => field.merge.retain_keys = true,
                ("i", inlined) => {
                    let (numbers, names) = inlined.split_once(':').expect("numbers and names");
                    field.inline = numbers.split('/').map(|number| number.parse().expect("a number")).collect();
                    field.embedded = Some(names.into());
                }
                ("d", default) => field.default = Some(serde_json::from_str(default).expect("a default in JSON")),
                _ => panic!("the table has no attribute {word}"),
            }
        }
        if flags.contains('a') {
            self.alone(&mut field, |node| node.atomic = true);
        }
        if flags.contains('g') {
            self.alone(&mut field, |node| {
                assert!(matches!(node.shape, Shape::Object(_)), "{name} is granular, its type not read yet");
                node.atomic = false;
            });
        }
        field
    }

    /// Tells the items of the field's list apart.
    fn keyed(&mut self, field: &mut Field, kind: ListKind) {
        self.alone(field, |node| {
            if let Shape::List { list, .. } = &mut node.shape {
                *list = kind;
            }
        });
    }

    /// Gives the field a type of its own, changed. There are few such fields; sharing them would save little.
    fn alone(&mut self, field: &mut Field, change: impl FnOnce(&mut Node)) {
        let mut node = self.types.schema(field.schema).node().clone();
        change(&mut node);
        field.schema = self.types.add(node);
    }
}

#[cfg(test)]
mod tests;
