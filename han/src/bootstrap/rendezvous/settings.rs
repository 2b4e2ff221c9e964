//! What the environment says of a rendezvous: `HAN_RENDEZVOUS`, `HAN_RANK`, `HAN_SIZE`, the secret and the time limit.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::proof::Key;
use crate::bootstrap::error::{Error, Result};

/// Where the ranks meet.
pub(in crate::bootstrap) const ADDRESS: &str = "HAN_RENDEZVOUS";
pub(in crate::bootstrap) const RANK: &str = "HAN_RANK";
pub(in crate::bootstrap) const SIZE: &str = "HAN_SIZE";
const SECRET: &str = "HAN_SECRET";
const SECRET_FILE: &str = "HAN_SECRET_FILE";
const TIMEOUT: &str = "HAN_RENDEZVOUS_TIMEOUT";

const DEFAULT_LIMIT: Duration = Duration::from_secs(120);
const LONGEST_LIMIT_S: f64 = 1e6;
/// Fewer could be guessed.
const MIN_SECRET_BYTES: usize = 16;
const MAX_SECRET_BYTES: usize = 4096;
/// Rank 0 has a place for each at once.
const MAX_RANKS: usize = 1 << 20;

/// A rank's place in a job that meets at an address.
#[derive(Debug)]
pub(in crate::bootstrap) struct Settings {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) secret: Key,
    /// How long the others are waited for.
    pub(super) limit: Duration,
}

impl Settings {
    /// Reads them; `address` is the value of [`ADDRESS`].
    ///
    /// # Errors
    /// [`Error::Environment`]: what is missing or wrong, and what would be right.
    pub(in crate::bootstrap) fn read(address: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let (host, port) = host_and_port(address)?;
        let (rank, size) = (number(RANK, &variable)?, number(SIZE, &variable)?);
        if size > MAX_RANKS {
            return Err(wrong(format!("{SIZE}={size}: at most {MAX_RANKS} ranks can meet")));
        }
        if rank >= size {
            return Err(wrong(format!("{RANK}={rank} and {SIZE}={size}: ranks count from 0 to {SIZE} - 1")));
        }
        Ok(Self { host, port, rank, size, secret: Key::new(&secret(&variable)?), limit: limit(&variable)? })
    }

    /// `host:port`, for messages.
    pub(super) fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

fn host_and_port(address: &str) -> Result<(String, u16)> {
    let refuse = || {
        wrong(format!(
            "{ADDRESS}={address}: expected HOST:PORT, a name or address of rank 0's machine and a free port there, such as \
             node1:29500 or [fd00::1]:29500"
        ))
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(refuse)?;
    let port = port.parse().ok().filter(|port: &u16| *port > 0).ok_or_else(refuse)?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match bracketed {
        Some(host) if !host.is_empty() => Ok((host.to_owned(), port)),
        None if !host.is_empty() && !host.contains([':', '[', ']']) => Ok((host.to_owned(), port)),
        _ => Err(refuse()),
    }
}

fn number(name: &str, variable: &impl Fn(&str) -> Option<String>) -> Result<usize> {
    let value = variable(name).ok_or_else(|| {
        wrong(format!("{name} is not set beside {ADDRESS}: each process needs {RANK}, its number from 0, and {SIZE}, how many there are"))
    })?;
    value.parse().map_err(|_| {
        wrong(format!(
            "{name}={value}: expected a number from 0: {RANK} is that of this process, {SIZE} how many there are"
        ))
    })
}

fn secret(variable: &impl Fn(&str) -> Option<String>) -> Result<Vec<u8>> {
    let (origin, secret) = match (variable(SECRET), variable(SECRET_FILE)) {
        (Some(_), Some(_)) => return Err(wrong(format!("{SECRET} and {SECRET_FILE} are both set: which one holds?"))),
        (None, None) => {
            return Err(wrong(format!(
                "{ADDRESS} needs a secret that all ranks know, by which strangers and other jobs are kept out. Make one for each job with \
                 `(umask 077; head -c 32 /dev/urandom | base64 > han.secret)` and set {SECRET_FILE}=han.secret on all ranks, or {SECRET} to \
                 its text"
            )));
        }
        (Some(text), None) => (SECRET.to_owned(), text.into_bytes()),
        (None, Some(path)) => (format!("{SECRET_FILE}={path}"), read_file(&path)?),
    };
    let secret = secret.trim_ascii();
    if secret.len() < MIN_SECRET_BYTES {
        let bytes = secret.len();
        return Err(wrong(format!(
            "{origin}: a secret of {bytes} bytes can be guessed: {MIN_SECRET_BYTES} are needed"
        )));
    }
    Ok(secret.to_vec())
}

fn read_file(path: &str) -> Result<Vec<u8>> {
    let cannot = |error| Error::io(format!("read {SECRET_FILE}={path}"))(error);
    // Opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(cannot)?.is_file() {
        return Err(wrong(format!("{SECRET_FILE}={path} is a directory, a pipe or a device, not a file")));
    }
    let file = File::open(path).map_err(cannot)?;
    let permissions: Permissions = file.metadata().map_err(cannot)?.permissions();
    if permissions.mode() & 0o077 != 0 {
        return Err(wrong(format!("{SECRET_FILE}={path} can be read or written by others: chmod 600 {path}")));
    }
    let mut secret = Vec::new();
    file.take(MAX_SECRET_BYTES as u64 + 1).read_to_end(&mut secret).map_err(cannot)?;
    if secret.len() > MAX_SECRET_BYTES {
        return Err(wrong(format!(
            "{SECRET_FILE}={path} has more than {MAX_SECRET_BYTES} bytes: is this the right file?"
        )));
    }
    Ok(secret)
}

fn limit(variable: &impl Fn(&str) -> Option<String>) -> Result<Duration> {
    let Some(value) = variable(TIMEOUT) else { return Ok(DEFAULT_LIMIT) };
    let seconds = value.parse().ok().filter(|seconds: &f64| *seconds > 0.0 && *seconds <= LONGEST_LIMIT_S);
    let refuse = || wrong(format!("{TIMEOUT}={value}: expected seconds, more than 0 and at most {LONGEST_LIMIT_S}"));
    Ok(Duration::from_secs_f64(seconds.ok_or_else(refuse)?))
}

fn wrong(text: String) -> Error {
    Error::Environment(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: [(&str, &str); 3] = [(RANK, "1"), (SIZE, "4"), (SECRET, "0123456789abcdef")];

    fn read(address: &str, changed: &[(&str, &str)]) -> Result<Settings> {
        let value = |name: &str| {
            let changed = changed.iter().find(|(known, _)| *known == name);
            let (_, value) = changed.or_else(|| GOOD.iter().find(|(known, _)| *known == name))?;
            (!value.is_empty()).then(|| (*value).to_owned())
        };
        Settings::read(address, value)
    }

    #[test]
    fn names_and_both_kinds_of_addresses_are_read() {
        for (address, host) in
            [("node1:29500", "node1"), ("10.0.0.1:29500", "10.0.0.1"), ("[fd00::1]:29500", "fd00::1")]
        {
            let settings = read(address, &[]).unwrap();
            assert_eq!((settings.host.as_str(), settings.port, settings.address().as_str()), (host, 29500, address));
            assert_eq!((settings.rank, settings.size, settings.limit), (1, 4, DEFAULT_LIMIT));
        }
        assert_eq!(read("a:1", &[(TIMEOUT, "2.5")]).unwrap().limit, Duration::from_millis(2500));
    }

    #[test]
    fn mistakes_are_answered_with_what_is_right() {
        for address in ["", "node1", "node1:", ":5", "node1:0", "node1:70000", "fd00::1:5", "[]:5", "[a:5", "node1:x"] {
            let error = read(address, &[]).unwrap_err().to_string();
            assert!(error.contains("expected HOST:PORT"), "{address}: {error}");
        }
        for (changed, expected) in [
            ((RANK, ""), "HAN_RANK is not set"),
            ((SIZE, ""), "HAN_SIZE is not set"),
            ((RANK, "4"), "from 0 to HAN_SIZE - 1"),
            ((SIZE, "0"), "from 0 to HAN_SIZE - 1"),
            ((SIZE, "4294967295"), "HAN_SIZE=4294967295: at most 1048576 ranks"),
            ((RANK, "-1"), "HAN_RANK=-1: expected a number from 0"),
            ((SIZE, "two"), "HAN_SIZE=two: expected a number from 0"),
            ((SECRET, ""), "/dev/urandom"),
            ((SECRET, "short"), "5 bytes can be guessed"),
            ((SECRET_FILE, "x"), "both set"),
            ((TIMEOUT, "0"), "expected seconds"),
            ((TIMEOUT, "soon"), "expected seconds"),
            ((TIMEOUT, "inf"), "expected seconds"),
        ] {
            let error = read("node1:5", &[changed]).unwrap_err().to_string();
            assert!(error.contains(expected), "{changed:?}: {error}");
        }
    }

    #[test]
    fn secrets_of_files_are_for_their_owner_alone() {
        let path = std::env::temp_dir().join(format!("han-secret-{}", std::process::id()));
        let write = |mode: u32, text: &[u8]| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let text = read("node1:5", &[(SECRET, ""), (SECRET_FILE, path.to_str().unwrap())]);
            text.map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(write(0o600, b"0123456789abcdef\n"), Ok(()));
        assert!(write(0o640, b"0123456789abcdef\n").unwrap_err().contains("chmod 600"));
        assert!(write(0o600, b"0123456789\n").unwrap_err().contains("can be guessed"));
        assert!(write(0o600, &[b'x'; MAX_SECRET_BYTES + 1]).unwrap_err().contains("right file"));
        fs::remove_file(&path).unwrap();
        assert!(refusal(path.to_str().unwrap()).contains("No such file"));
    }

    #[test]
    fn a_secret_is_not_waited_for_at_a_pipe() {
        let path = std::env::temp_dir().join(format!("han-secret-pipe-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = refusal(path.to_str().unwrap());
        fs::remove_file(&path).unwrap();
        assert!(error.contains("not a file"), "{error}");
        assert!(refusal("/").contains("HAN_SECRET_FILE=/ is a directory"));
    }

    fn refusal(path: &str) -> String {
        read("node1:5", &[(SECRET, ""), (SECRET_FILE, path)]).unwrap_err().to_string()
    }

    #[test]
    fn the_secret_is_not_shown() {
        assert!(!format!("{:?}", read("node1:5", &[]).unwrap()).contains("0123456789abcdef"));
    }

    proptest! {
        #[test]
        fn any_address_is_read_or_refused(address in "\\PC{0,40}") {
            let _ = read(&address, &[]);
        }
    }
}
