//! Everything that a search has measured, so that one that was interrupted goes on where it was.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::search::Work;
use crate::config::BUILD;

/// The first line of a journal.
const TITLE: &str = "han tune, interrupted: version 1";

/// The shortest time that is not 0 in the tuning file, in microseconds.
const LEAST_US: f64 = 0.001;

/// What one measurement gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Entry {
    /// Microseconds: of the whole operation, or by leader those of its tasks.
    pub us: Vec<Vec<f64>>,
    /// Seconds that measuring took.
    pub spent_s: f64,
}

/// Measurements by what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Journal {
    /// Which search of which job this is.
    title: String,
    entries: BTreeMap<String, Entry>,
}

impl Journal {
    /// An empty one, of the search by this build that `title` tells from others, part by part with ", " between.
    #[must_use]
    pub fn new(title: &str) -> Self {
        // What settings mean may be another thing in another one.
        Self { title: format!("build {BUILD}, {}", title.replace('\n', " ")), entries: BTreeMap::new() }
    }

    /// What is known of `work`.
    #[must_use]
    pub fn get(&self, work: &Work) -> Option<&Entry> {
        self.entries.get(&work.to_string())
    }

    /// Number of measurements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if nothing was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Notes a measurement, and gives its line to append to the file.
    pub fn put(&mut self, work: &Work, entry: Entry) -> String {
        let line = line(&work.to_string(), &entry);
        self.entries.insert(work.to_string(), entry);
        line
    }

    /// The head of the file.
    #[must_use]
    pub fn head(&self) -> String {
        format!("{TITLE}\n{}\n", self.title)
    }

    /// Reads what an earlier search of the same kind has left. A last line that was cut short is left out.
    ///
    /// # Errors
    /// It is another search's, or none.
    pub fn resume(&mut self, text: &str) -> Result<(), String> {
        let body = text.strip_prefix(TITLE).and_then(|rest| rest.strip_prefix('\n'));
        let Some((title, body)) = body.and_then(|body| body.split_once('\n')) else {
            return Err(format!("is no journal of an interrupted search: its first line is not {TITLE:?}"));
        };
        if title != self.title {
            let differ = title.split(", ").zip(self.title.split(", ")).find(|(its, own)| its != own);
            let (its, own) = differ.unwrap_or((title, &self.title));
            return Err(format!("is of another search: it has {its}, this one {own}"));
        }
        let whole = body.rfind('\n').map_or("", |end| &body[..end]);
        for (number, line) in whole.lines().enumerate() {
            let (key, entry) = read(line).ok_or_else(|| format!("line {}: not understood: {line:?}", number + 3))?;
            self.entries.insert(key, entry);
        }
        Ok(())
    }
}

fn line(key: &str, entry: &Entry) -> String {
    let mut line = format!("{key} = {} s:", entry.spent_s);
    for (place, leader) in entry.us.iter().enumerate() {
        line.push_str(if place == 0 { "" } else { " ;" });
        leader.iter().for_each(|us| {
            let _ = write!(line, " {us}");
        });
    }
    line.push('\n');
    line
}

fn read(line: &str) -> Option<(String, Entry)> {
    let (key, rest) = line.split_once(" = ")?;
    let (spent, values) = rest.split_once(" s:")?;
    let numbers = |leader: &str| leader.split_whitespace().map(|us| us.parse().ok()).collect::<Option<Vec<f64>>>();
    let us: Vec<Vec<f64>> = values.split(';').map(numbers).collect::<Option<_>>()?;
    let spent_s: f64 = spent.parse().ok()?;
    let is_time = |time: f64| time.is_finite() && time >= 0.0;
    let are_times = |leader: &Vec<f64>| !leader.is_empty() && leader.iter().copied().all(is_time);
    // A task may take no time, but all together do.
    let is_whole = us.iter().any(|leader| leader.iter().sum::<f64>() >= LEAST_US);
    (is_time(spent_s) && us.iter().all(are_times) && is_whole).then(|| (key.to_owned(), Entry { us, spent_s }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use shm_core::Collective;

    use super::*;
    use crate::select::Inter;

    fn work(bytes: usize) -> Work {
        Work { by: "task", turn: 0, collective: Collective::Reduce, bytes, chunks: Some(3), settings: Inter::default() }
    }

    #[test]
    fn an_interrupted_search_goes_on() {
        let mut first = Journal::new("2 x 2");
        let entries = [
            Entry { us: vec![vec![1.5, 1.0 / 3.0], vec![2.0]], spent_s: 0.25 },
            Entry { us: vec![vec![7.0]], spent_s: 1e-9 },
        ];
        let mut file = first.head();
        for (entry, bytes) in entries.iter().zip([8, 64]) {
            file += &first.put(&work(bytes), entry.clone());
        }
        let mut again = Journal::new("2 x 2");
        again.resume(&file).unwrap();
        assert_eq!(again, first);
        assert_eq!(again.get(&work(8)), Some(&entries[0]));
        // Whoever was killed while it wrote has lost the last line only.
        let mut cut = Journal::new("2 x 2");
        cut.resume(&file[..file.len() - 2]).unwrap();
        assert_eq!((cut.len(), cut.get(&work(64))), (1, None));
        assert!(!cut.is_empty());
    }

    #[test]
    fn what_is_no_journal_of_this_search_is_refused() {
        let resume = |text: &str| Journal::new("2 x 2").resume(text).unwrap_err();
        assert!(resume("").contains("first line"));
        let other = Journal::new("2 nodes, --min 8, --quick true")
            .resume(&Journal::new("2 nodes, --min 4, --quick true").head());
        assert_eq!(other.unwrap_err(), "is of another search: it has --min 4, this one --min 8");
        let elsewhere = Journal::new("2 x 2").head().replace(BUILD, "0123");
        assert_eq!(resume(&elsewhere), format!("is of another search: it has build 0123, this one build {BUILD}"));
        for line in [
            "a = b",
            "a = 1 s:",
            "a = 1 s: nan",
            "a = 1 s: 2 ; -3",
            "a = 1 s: 2 ;",
            "a = nan s: 2",
            "a = inf s: 2",
            "a = -1 s: 2",
            "a = 1 s: 0",
            "a = 1 s: 1e-300 0 ; 0",
        ] {
            assert!(resume(&format!("{}{line}\n", Journal::new("2 x 2").head())).contains("line 3: not understood"));
        }
        let mut tasks = Journal::new("2 x 2");
        tasks.resume(&format!("{}a = 0 s: 0 0.001 ; 0\n", tasks.head())).unwrap();
        assert_eq!(tasks.len(), 1);
    }
}
