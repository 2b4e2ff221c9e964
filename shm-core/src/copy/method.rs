//! The ways in which one rank's memory can be reached by another, which of them may be used, and which
//! of them can.

use std::fmt;

/// A way to reach a peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The peer's memory is mapped here, and loaded and stored like any other.
    Shared,
    /// The kernel copies from one process to the other (`process_vm_readv`).
    Cma,
    /// The owner copies in, the peer copies out, through chunks of a communicator's segment.
    Cico,
}

impl Method {
    /// All of them, the fastest first.
    pub const ALL: [Self; 3] = [Self::Shared, Self::Cma, Self::Cico];

    /// As settings and messages call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Cma => "cma",
            Self::Cico => "cico",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The methods that may be used. [`Method::Cico`] always may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodSet {
    shared: bool,
    cma: bool,
}

impl Default for MethodSet {
    fn default() -> Self {
        Self { shared: true, cma: true }
    }
}

impl MethodSet {
    /// Reads names that are joined by `+` or commas.
    ///
    /// # Errors
    /// A sentence that lists the names.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut set = Self { shared: false, cma: false };
        for name in text.split(['+', ',']).map(str::trim) {
            match Method::ALL.into_iter().find(|method| method.name() == name) {
                Some(Method::Shared) => set.shared = true,
                Some(Method::Cma) => set.cma = true,
                Some(Method::Cico) => {}
                None => {
                    return Err(format!("methods={text}: expected some of shared, cma, cico, joined by +"));
                }
            }
        }
        Ok(set)
    }

    /// Whether `method` may be used.
    #[must_use]
    pub const fn has(self, method: Method) -> bool {
        match method {
            Method::Shared => self.shared,
            Method::Cma => self.cma,
            Method::Cico => true,
        }
    }
}

impl fmt::Display for MethodSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for method in Method::ALL.into_iter().filter(|&method| self.has(method)) {
            f.write_str(method.name())?;
            if method != Method::Cico {
                f.write_str("+")?;
            }
        }
        Ok(())
    }
}

/// Which methods all ranks of a job can use, with the reason where they cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Methods {
    /// `None` where the method works.
    obstacles: [Option<String>; 2],
}

impl Methods {
    /// From the reasons against `shared` and `cma`, as far as there are any.
    pub(super) fn new(shared: Option<String>, cma: Option<String>) -> Self {
        Self { obstacles: [shared, cma] }
    }

    /// Whether all ranks can use `method`.
    #[inline]
    #[must_use]
    pub fn has(&self, method: Method) -> bool {
        match method {
            Method::Shared => self.obstacles[0].is_none(),
            Method::Cma => self.obstacles[1].is_none(),
            Method::Cico => true,
        }
    }

    /// Why `method` is not used; nothing if it is.
    #[must_use]
    pub fn obstacle(&self, method: Method) -> Option<&str> {
        match method {
            Method::Shared => self.obstacles[0].as_deref(),
            Method::Cma => self.obstacles[1].as_deref(),
            Method::Cico => None,
        }
    }

    /// What became of `method` in words: `on`, or `off: ` and the reason.
    #[must_use]
    pub fn verdict(&self, method: Method) -> String {
        self.obstacle(method).map_or_else(|| "on".to_owned(), |why| format!("off: {why}"))
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = Method::ALL.map(|method| format!("{method} {}", self.verdict(method)));
        f.write_str(&words.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_survive_their_text() {
        for text in ["shared+cma+cico", "shared+cico", "cma+cico", "cico"] {
            assert_eq!(MethodSet::parse(text).map(|set| set.to_string()).as_deref(), Ok(text));
        }
        assert_eq!(MethodSet::parse("cma, shared").map(|set| set.to_string()).as_deref(), Ok("shared+cma+cico"));
        assert!(MethodSet::parse("xpmem").is_err_and(|why| why.contains("shared, cma, cico")));
    }

    #[test]
    fn what_is_off_says_why() {
        let methods = Methods::new(None, Some("rank 3: no".to_owned()));
        assert!(methods.has(Method::Shared) && !methods.has(Method::Cma) && methods.has(Method::Cico));
        assert_eq!(methods.to_string(), "shared on; cma off: rank 3: no; cico on");
    }
}
