//! Variables of the environment that are likely to be meant for this library, and have no effect because their names
//! are wrong.

use strsim::osa_distance;

use crate::select;

/// All variables that the library and what belongs to it read.
const KNOWN: [&str; 19] = [
    "HAN_INTERFACE",
    "HAN_LOG",
    "HAN_MPI",
    "HAN_MPI_AFTER",
    "HAN_MPI_GPU",
    "HAN_MPI_PASS",
    "HAN_MPI_REPORT",
    "HAN_PROVIDER",
    "HAN_RANK",
    "HAN_RENDEZVOUS",
    "HAN_RENDEZVOUS_TIMEOUT",
    "HAN_REPRODUCIBLE",
    "HAN_SECRET",
    "HAN_SECRET_FILE",
    "HAN_SET",
    "HAN_SIZE",
    "HAN_TRACE",
    "HAN_TUNING",
    "HAN_WATCHDOG",
];

/// Letters from which on a name may have two mistakes, and not only one.
const LONG: usize = "HAN_TRACE".len();

/// The key of `HAN_SET` that is called so in capitals.
fn key(name: &str) -> Option<String> {
    let key = name.strip_prefix("HAN_")?.to_lowercase();
    let mut keys = shm_core::settings::KEYS.iter().chain(select::KEYS);
    keys.any(|(known, _)| *known == key).then_some(key)
}

/// A sentence for each of `names` that is almost the name of a variable, or is a setting's.
pub(crate) fn sentences(names: impl Iterator<Item = String>) -> Vec<String> {
    let sentence = |name: String| {
        if !name.starts_with("HAN_") || KNOWN.contains(&name.as_str()) {
            return None;
        }
        if let Some(key) = key(&name) {
            return Some(format!("{name} is set, but han does not read it: is HAN_SET={key}=... meant?"));
        }
        let is_near = |known: &&&str| osa_distance(&name, known) <= if known.len() < LONG { 1 } else { 2 };
        let known = KNOWN.iter().find(is_near)?;
        Some(format!("{name} is set, but han does not read it: is {known} meant?"))
    };
    names.filter_map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_names_are_told_and_no_others() {
        let names = [
            "HAN_WATCHDGO",
            "HAN_SETS",
            "HAN_PROVIDERS",
            "HAN_SIZE",
            "HAN_RANK",
            "HAN_TEST_SEED",
            "HAN",
            "LAN_SIZE",
            "VPN_PROVIDER",
        ];
        let told = sentences(names.into_iter().map(str::to_owned));
        let about = ["HAN_WATCHDGO", "HAN_SETS", "HAN_PROVIDERS"];
        assert_eq!(told.len(), about.len(), "{told:?}");
        for (sentence, (name, known)) in told.iter().zip(about.iter().zip(["HAN_WATCHDOG", "HAN_SET", "HAN_PROVIDER"]))
        {
            assert_eq!(*sentence, format!("{name} is set, but han does not read it: is {known} meant?"));
        }
    }

    #[test]
    fn settings_of_their_own_are_told() {
        let told = sentences(["HAN_TIMEOUT_S", "HAN_LEADERS", "HAN_TIMEOUT_MS"].into_iter().map(str::to_owned));
        let wanted = ["timeout_s", "leaders"].map(|key| {
            let name = key.to_uppercase();
            format!("HAN_{name} is set, but han does not read it: is HAN_SET={key}=... meant?")
        });
        assert_eq!(told, wanted);
    }

    #[test]
    fn names_are_apart() {
        for known in KNOWN {
            assert!(sentences(std::iter::once(known.to_owned())).is_empty(), "{known}");
        }
    }
}
