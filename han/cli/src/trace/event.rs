//! Events of a trace's file, kept in little memory: there may be millions, made of few words.

use std::collections::HashSet;
use std::fmt;
use std::rc::Rc;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

/// A word that events share. One pointer, where an `Rc<str>` has two.
pub(super) type Word = Rc<String>;

/// One event of the format.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) name: Word,
    pub(super) cat: Option<Word>,
    pub(super) ph: Word,
    pub(super) ts: Option<f64>,
    pub(super) dur: Option<f64>,
    pub(super) pid: usize,
    pub(super) tid: usize,
    pub(super) args: Box<[(Word, Arg)]>,
}

/// The value of an argument.
#[derive(Debug, Clone)]
pub(super) enum Arg {
    Number(u64),
    Word(Word),
    Other(Box<Value>),
}

// What memory a trace takes is on the users' page.
const _: () = assert!(size_of::<Event>() == 88 && size_of::<(Word, Arg)>() == 24);

impl Event {
    pub(super) fn arg(&self, key: &str) -> Option<&Arg> {
        self.args.iter().find(|(known, _)| **known == key).map(|(_, value)| value)
    }
}

impl Arg {
    pub(super) fn number(&self) -> Option<u64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    pub(super) fn word(&self) -> Option<&str> {
        if let Self::Word(word) = self { Some(word) } else { None }
    }
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => word.fmt(f),
            Self::Other(value) => value.fmt(f),
        }
    }
}

/// An event as it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<String>,
    ph: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: usize,
    tid: usize,
    args: Map<String, Value>,
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { name, cat, ph, ts, dur, pid, tid, args } = self;
        let value = |arg: &Arg| match arg {
            Arg::Number(number) => Value::from(*number),
            Arg::Word(word) => Value::from(word.as_str()),
            Arg::Other(value) => Value::clone(value),
        };
        let written = Written {
            name: name.to_string(),
            cat: cat.as_ref().map(ToString::to_string),
            ph: ph.to_string(),
            ts: *ts,
            dur: *dur,
            pid: *pid,
            tid: *tid,
            args: args.iter().map(|(key, arg)| (key.to_string(), value(arg))).collect(),
        };
        written.serialize(serializer)
    }
}

/// The words of a file, each once.
#[derive(Default)]
struct Words(HashSet<Word>);

impl Words {
    fn word(&mut self, text: String) -> Word {
        if let Some(known) = self.0.get(&text) {
            return Rc::clone(known);
        }
        let word = Rc::new(text);
        self.0.insert(Rc::clone(&word));
        word
    }

    fn event(&mut self, Written { name, cat, ph, ts, dur, pid, tid, args }: Written) -> Event {
        let args = args.into_iter().map(|(key, value)| {
            let arg = match value {
                Value::String(text) => Arg::Word(self.word(text)),
                other => other.as_u64().map_or_else(|| Arg::Other(Box::new(other)), Arg::Number),
            };
            (self.word(key), arg)
        });
        let args = args.collect();
        Event { name: self.word(name), cat: cat.map(|cat| self.word(cat)), ph: self.word(ph), ts, dur, pid, tid, args }
    }
}

/// Reads the events of a file one by one.
pub(super) fn read_all<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Event>, D::Error> {
    struct All;
    impl<'de> Visitor<'de> for All {
        type Value = Vec<Event>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of events")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Event>, A::Error> {
            let (mut words, mut events) = (Words::default(), Vec::new());
            while let Some(written) = list.next_element()? {
                events.push(words.event(written));
            }
            Ok(events)
        }
    }
    deserializer.deserialize_seq(All)
}
