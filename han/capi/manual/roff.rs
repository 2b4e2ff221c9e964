//! Text as the source of a manual page, in the macros of man(7).

/// A page that is being written.
pub(crate) struct Page(String);

impl Page {
    /// Begins the page of this name in section 3.
    pub(crate) fn new(name: &str, date: &str, summary: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let upper = name.to_uppercase();
        Self(format!(".TH {upper} 3 \"{date}\" \"han {version}\" \"han\"\n.SH NAME\n{name} \\- {}\n", escaped(summary)))
    }

    pub(crate) fn section(&mut self, title: &str) -> &mut Self {
        self.line(&format!(".SH \"{}\"", title.to_uppercase()))
    }

    pub(crate) fn subsection(&mut self, title: &str) -> &mut Self {
        self.line(&format!(".SS {}", quoted(title)))
    }

    /// Lines that stay as they are.
    pub(crate) fn code(&mut self, text: &str) -> &mut Self {
        self.line(".nf");
        for line in text.lines() {
            let line = if line.is_empty() { ".PP".to_owned() } else { format!("\\fB{}\\fP", escaped(line)) };
            self.line(&line);
        }
        self.line(".fi")
    }

    /// Paragraphs; lines that begin with a dash are items of a list, indented ones that belong to none stay as they are.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        // What the previous lines were: an item, lines that stay as they are, an empty one.
        let (mut in_item, mut verbatim, mut fresh) = (false, false, false);
        for line in text.lines() {
            let indented = line.starts_with("  ") && !in_item;
            if verbatim && !indented && !line.is_empty() {
                self.line(".fi");
                (verbatim, fresh) = (false, true);
            }
            if line.is_empty() {
                (in_item, fresh) = (false, true);
            } else if let Some(item) = line.strip_prefix("- ") {
                in_item = true;
                self.line(".IP \\(bu 2").line(&marked(item));
                fresh = false;
            } else if indented {
                if !verbatim {
                    self.paragraph().line(".nf");
                } else if fresh {
                    self.line("\\&");
                }
                (verbatim, fresh) = (true, false);
                self.line(&escaped(line));
            } else {
                if fresh {
                    self.paragraph();
                }
                fresh = false;
                self.line(&marked(line.trim_start()));
            }
        }
        if verbatim {
            self.line(".fi");
        }
        self
    }

    /// A term and its meaning.
    pub(crate) fn term(&mut self, term: &str, meaning: &str) -> &mut Self {
        self.line(".TP").line(&format!("\\fB{}\\fP", escaped(term)));
        self.line(&if meaning.is_empty() { "\\&".to_owned() } else { marked(meaning) })
    }

    /// Names of other pages with their sections.
    pub(crate) fn references<'n>(&mut self, names: impl Iterator<Item = (&'n str, u8)>) -> &mut Self {
        let mut names: Vec<String> =
            names.map(|(name, section)| format!(".BR {} ({section})", escaped(name))).collect();
        names.sort();
        self.line(&names.join(" ,\n"))
    }

    pub(crate) fn end(self) -> String {
        self.0
    }

    /// Begins a paragraph, which a heading has done already.
    fn paragraph(&mut self) -> &mut Self {
        let last = self.0.lines().last().unwrap_or_default();
        if last.starts_with(".SH") || last.starts_with(".SS") { self } else { self.line(".PP") }
    }

    fn line(&mut self, line: &str) -> &mut Self {
        self.0.push_str(line);
        self.0.push('\n');
        self
    }
}

/// Escaped, with the names of functions in bold, and what stands between backquotes in italics.
fn marked(line: &str) -> String {
    let mut text = String::new();
    for (at, part) in line.split('`').enumerate() {
        if at % 2 == 1 {
            text.push_str(&format!("\\fI{}\\fP", escaped_inside(part)));
            continue;
        }
        for word in part.split_inclusive(|letter| !of_a_name(letter)) {
            let name = word.trim_end_matches(|letter| !of_a_name(letter));
            let bold = if name.starts_with("han_") { format!("\\fB{name}\\fP") } else { escaped_inside(name) };
            text.push_str(&(bold + &escaped_inside(&word[name.len()..])));
        }
    }
    guarded(text)
}

fn of_a_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn escaped(line: &str) -> String {
    guarded(escaped_inside(line))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped_inside(text).replace('"', "\\(dq"))
}

fn escaped_inside(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// A full stop or an apostrophe at the beginning of a line would be a request.
fn guarded(line: String) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}
