//! The few parts of an object that most decisions need, without building its tree.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use super::ParseError;

/// A string that is borrowed where its JSON holds no escapes. Null is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
        }

        deserializer.deserialize_any(TextVisitor)
    }
}

/// What an object is and what it is called.
///
/// ```
/// use conductor_machinery::json::Envelope;
/// let object = br#"{"kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"x": [1, 2]}}"#;
/// let envelope = Envelope::scan(object).unwrap();
/// assert_eq!(&*envelope.metadata.name, "web");
/// assert_eq!(envelope.metadata.labels().next(), Some(("app", "web")));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Envelope<'a> {
    /// The group and version.
    #[serde(borrow)]
    pub api_version: Text<'a>,
    /// The kind.
    #[serde(borrow)]
    pub kind: Text<'a>,
    /// The metadata.
    #[serde(borrow, deserialize_with = "null_is_default")]
    pub metadata: EnvelopeMeta<'a>,
}

/// The parts of an object's metadata that most decisions need; what is absent is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EnvelopeMeta<'a> {
    /// The name.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// The prefix of a name to be generated.
    #[serde(borrow)]
    pub generate_name: Text<'a>,
    /// The namespace; empty for what is in none.
    #[serde(borrow)]
    pub namespace: Text<'a>,
    /// The uid.
    #[serde(borrow)]
    pub uid: Text<'a>,
    /// The revision of the last write.
    #[serde(borrow)]
    pub resource_version: Text<'a>,
    /// How often the desired state changed.
    pub generation: Option<i64>,
    /// When it was created.
    #[serde(borrow)]
    pub creation_timestamp: Text<'a>,
    /// Since when it is being deleted; empty if it is not.
    #[serde(borrow)]
    pub deletion_timestamp: Text<'a>,
    #[serde(borrow, deserialize_with = "pairs")]
    labels: Pairs<'a>,
    /// Who must agree before it is gone.
    #[serde(borrow, deserialize_with = "list")]
    pub finalizers: Vec<Text<'a>>,
}

type Pairs<'a> = Vec<(Text<'a>, Text<'a>)>;

impl<'a> Envelope<'a> {
    /// Reads the envelope and skips the rest. Meant for bytes that were validated when they were stored.
    pub fn scan(object: &'a [u8]) -> Result<Self, ParseError> {
        serde_json::from_slice(object).map_err(|error| ParseError(error.to_string()))
    }
}

impl EnvelopeMeta<'_> {
    /// The labels, in the order they are written.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.labels.iter().map(|(key, value)| (&**key, &**value))
    }

    /// One label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels().find(|(label, _)| *label == key).map(|(_, value)| value)
    }

    /// Whether it is being deleted.
    pub fn is_deleting(&self) -> bool {
        !self.deletion_timestamp.is_empty()
    }
}

fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn list<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Text<'a>>, D::Error> {
    null_is_default(deserializer)
}

fn pairs<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Pairs<'a>, D::Error> {
    struct PairsVisitor<'a>(PhantomData<&'a ()>);

    impl<'de: 'a, 'a> Visitor<'de> for PairsVisitor<'a> {
        type Value = Pairs<'a>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of strings")
        }

        fn visit_unit<E: Error>(self) -> Result<Pairs<'a>, E> {
            Ok(Vec::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Pairs<'a>, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = entries.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Pairs<'a>, A::Error> {
            Err(A::Error::invalid_type(de::Unexpected::Seq, &self))
        }
    }

    deserializer.deserialize_any(PairsVisitor(PhantomData))
}
