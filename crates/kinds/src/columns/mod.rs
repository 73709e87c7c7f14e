//! What `kubectl get` shows of each built-in kind: the columns of its table and the cells of a row.
//!
//! A kind is one [`Printer`] in the file of its group: the columns and a function from an object to its cells. Kinds
//! without one show their name and when they were created.

use serde_json::{Value, json};

use crate::value::{list, text};

mod batch;
mod cluster;
mod event;
mod format;
mod metrics;
mod network;
mod pod;
mod policy;
mod storage;
mod time;
mod workload;

#[cfg(test)]
mod tests;

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// The OpenAPI type of its cells.
    pub kind: &'static str,
    /// The OpenAPI format of its cells; `name` marks the column that names the object.
    pub format: &'static str,
    /// What it says, for people.
    pub description: &'static str,
    /// 0 is always shown, more only when asked for (`-o wide`).
    pub priority: i32,
}

impl Column {
    const fn new(name: &'static str, kind: &'static str, description: &'static str) -> Column {
        Column { name, kind, format: "", description, priority: 0 }
    }

    const fn text(name: &'static str, description: &'static str) -> Column {
        Column::new(name, "string", description)
    }

    const fn integer(name: &'static str, description: &'static str) -> Column {
        Column::new(name, "integer", description)
    }

    const fn boolean(name: &'static str, description: &'static str) -> Column {
        Column::new(name, "boolean", description)
    }

    const fn wide(mut self) -> Column {
        self.priority = 1;
        self
    }
}

const NAME: Column =
    Column { format: "name", ..Column::text("Name", "Unique among the objects of its kind and place.") };
const AGE: Column = Column::text("Age", "How long ago it was created.");
const CONTAINERS: Column = Column::text("Containers", "Names of the containers of its pods.").wide();
const IMAGES: Column = Column::text("Images", "Images of the containers of its pods.").wide();
const SELECTOR: Column = Column::text("Selector", "Labels of the pods it is about.").wide();

/// How one kind is shown.
struct Printer {
    group: &'static str,
    kind: &'static str,
    columns: &'static [Column],
    cells: fn(&Value, i64) -> Vec<Value>,
}

static DEFAULT: Printer = Printer {
    group: "",
    kind: "",
    columns: &[NAME, Column::new("Created At", "date", "When it was created.")],
    cells: |object, _| {
        let created = match text(object, "metadata.creationTimestamp") {
            "" => "0001-01-01T00:00:00Z",
            created => created,
        };
        vec![name(object), json!(created)]
    },
};

static PRINTERS: [&[Printer]; 7] = [
    workload::PRINTERS,
    cluster::PRINTERS,
    network::PRINTERS,
    storage::PRINTERS,
    event::PRINTERS,
    batch::PRINTERS,
    policy::PRINTERS,
];

fn printer(group: &str, kind: &str) -> &'static Printer {
    let mut all = PRINTERS.iter().copied().flatten();
    all.find(|printer| printer.kind == kind && printer.group == group).unwrap_or(&DEFAULT)
}

/// The columns of a kind's table.
///
/// ```
/// use conductor_kinds::columns::definitions;
/// let names: Vec<&str> = definitions("", "ConfigMap").iter().map(|column| column.name).collect();
/// assert_eq!(names, ["Name", "Data", "Age"]);
/// ```
pub fn definitions(group: &str, kind: &str) -> &'static [Column] {
    printer(group, kind).columns
}

/// Whether a kind has columns of its own.
pub fn has_own(group: &str, kind: &str) -> bool {
    !std::ptr::eq(printer(group, kind), &DEFAULT)
}

/// The cells of an object's row. `now` is in seconds since 1970.
pub fn cells(group: &str, kind: &str, object: &Value, now: i64) -> Vec<Value> {
    (printer(group, kind).cells)(object, now)
}

/// What the table says about an object's row as a whole: that a pod has run to its end.
pub fn conditions(group: &str, kind: &str, object: &Value) -> Option<Value> {
    let (reason, message) = match (group, kind, text(object, "status.phase")) {
        ("", "Pod", "Succeeded") => ("Succeeded", "The pod has completed successfully."),
        ("", "Pod", "Failed") => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn name(object: &Value) -> Value {
    json!(text(object, "metadata.name"))
}

fn age(object: &Value, now: i64) -> Value {
    json!(time::since(object, "metadata.creationTimestamp", now))
}

fn is_being_deleted(object: &Value) -> bool {
    crate::value::has(object, "metadata.deletionTimestamp")
}

/// The condition of this type at a dotted path.
fn condition<'a>(object: &'a Value, path: &str, of: &str) -> Option<&'a Value> {
    list(object, path).iter().find(|condition| text(condition, "type") == of)
}
