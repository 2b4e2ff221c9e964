//! How long a rank waits for the others at the start, and what it says meanwhile.

use std::time::Duration;

use super::error::{Error, Result};

/// What is set for long waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Seconds after which a wait is told of, again after twice as many and so on; 0: never.
    pub(crate) speak_s: f64,
    /// Seconds after which it is given up; 0: never.
    pub(crate) limit_s: f64,
}

/// One wait.
pub(super) struct Wait<S> {
    patience: Patience,
    sentence: S,
}

impl Patience {
    /// A wait that `sentence` tells of after so many seconds.
    pub(super) fn wait<S: Fn(f64) -> String>(self, sentence: S) -> Wait<S> {
        Wait { patience: self, sentence }
    }
}

impl<S: Fn(f64) -> String> Wait<S> {
    /// What is due after a wait of `elapsed`.
    ///
    /// # Errors
    /// [`Error::Waited`]: it is given up.
    pub(super) fn look(&mut self, elapsed: Duration) -> Result<()> {
        let (seconds, Patience { speak_s, limit_s }) = (elapsed.as_secs_f64(), self.patience);
        if limit_s > 0.0 && seconds >= limit_s {
            return Err(Error::Waited((self.sentence)(seconds)));
        }
        if speak_s > 0.0 && seconds >= speak_s {
            reduce_kernels::say(&format!("han: watchdog: {}", (self.sentence)(seconds)));
            self.patience.speak_s *= 2.0;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_of_ever_less_often_and_given_up_at_its_limit() {
        let mut wait = Patience { speak_s: 1.0, limit_s: 5.0 }.wait(|seconds| format!("{seconds:.1} s"));
        let mut next = || {
            wait.look(Duration::from_millis(1100)).unwrap();
            wait.patience.speak_s.to_bits()
        };
        assert_eq!((next(), next()), (2_f64.to_bits(), 2_f64.to_bits()));
        let error = wait.look(Duration::from_secs(5)).unwrap_err();
        assert!(error.to_string().contains("5.0 s"), "{error}");
        let mut forever = Patience { speak_s: 0.0, limit_s: 0.0 }.wait(|_| String::new());
        assert!(forever.look(Duration::from_secs(1 << 30)).is_ok());
    }
}
