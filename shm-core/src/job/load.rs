//! How many ranks compete for a core, and how ranks wait for that reason.

use super::introduction::Introduction;
use crate::settings::Settings;
use crate::sync::Patience;

/// How many ranks compete for a core.
#[derive(Debug)]
pub struct Load {
    pub(super) cores: usize,
    pub(super) quota: Option<f64>,
    per_core: f64,
}

impl Load {
    /// From the cores that each rank may use, and the tightest quota that any rank sees, see
    /// [`cgroup_quota`](crate::sys::affinity::cgroup_quota).
    pub fn new<'c, C>(ranks: impl ExactSizeIterator<Item = C>, quota: Option<f64>) -> Self
    where
        C: IntoIterator<Item = &'c usize, IntoIter: ExactSizeIterator>,
    {
        #[allow(clippy::cast_precision_loss)] // small numbers
        let size = ranks.len() as f64;
        let mut load = std::collections::BTreeMap::<usize, f64>::new();
        for cores in ranks {
            let cores = cores.into_iter();
            #[allow(clippy::cast_precision_loss)] // small numbers
            let share = 1.0 / cores.len() as f64;
            for &core in cores {
                *load.entry(core).or_default() += share;
            }
        }
        let busiest = load.values().copied().fold(0.0, f64::max);
        Self { cores: load.len(), quota, per_core: quota.map_or(busiest, |quota| busiest.max(size / quota)) }
    }

    /// Whether some core has more than one rank, each rank spread evenly over the cores that it may use.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        // Shares of a core are sums of fractions: leave room for their rounding.
        self.per_core > 1.0 + 1e-6
    }

    /// True if every rank has a core to itself, or is to act as if it had.
    pub(crate) fn gives_own_cores(&self, settings: &Settings) -> bool {
        settings.assume_own_cores.unwrap_or(!self.is_crowded())
    }
}

/// How ranks wait, and why: from how many of them compete for the most loaded core.
pub(super) fn placement(peers: &[Introduction], settings: &Settings) -> (bool, Patience, String) {
    // The tightest quota that any rank sees, so that all ranks come to the same result.
    let quota = peers.iter().filter_map(|peer| peer.quota).reduce(f64::min);
    let load = Load::new(peers.iter().map(|peer| &peer.cores), quota);
    let own_cores = load.gives_own_cores(settings);
    let Load { cores, per_core, .. } = load;
    let mut patience = if own_cores { Patience::OWN_CORE } else { Patience::SHARED_CORE };
    if settings.attentive {
        patience = patience.attentive();
    }
    if let Some(spins) = settings.spins {
        (patience.spins, patience.spins_apart) = (spins.max(1), spins.max(1));
    }
    patience.yields = settings.yields.unwrap_or(patience.yields);
    patience.sleep_us = settings.sleep_us.unwrap_or(patience.sleep_us);
    patience = patience.among(peers.len(), per_core);
    let words = format!(
        "{} ranks on {} cores{}: {per_core:.2} ranks on the busiest core, so waiting is {} polls \
         ({} for a rank on another core), {} yields (none where another process keeps the core), then sleep{}",
        peers.len(),
        cores,
        load.quota.map_or(String::new(), |q| format!(" (control group allows {q:.2})")),
        patience.spins,
        patience.spins_apart,
        patience.yields,
        if peers.iter().all(|peer| peer.membarrier) { "" } else { " (membarrier is refused: waking may take 1 ms)" },
    );
    (own_cores, patience, words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::introduction::tests::peer;

    #[test]
    fn waiting_follows_the_busiest_core() {
        let settings = Settings::default();
        let (_, own, _) = placement(&[peer(&[0, 1]), peer(&[0, 1])], &settings);
        assert_eq!(own, Patience::OWN_CORE);
        let (_, own, _) = placement(&[peer(&[0]), peer(&[1])], &settings);
        assert_eq!(own, Patience::OWN_CORE);
        let (_, shared, words) = placement(&[peer(&[0]), peer(&[0])], &settings);
        assert_eq!(shared, Patience::SHARED_CORE, "{words}");
        let (_, shared, _) = placement(&[peer(&[0, 1]), peer(&[0, 1]), peer(&[0, 1])], &settings);
        assert_eq!(shared, Patience::SHARED_CORE);
    }

    #[test]
    fn many_ranks_on_few_cores_look_at_each_other_seldom() {
        let look_ms = |ranks: usize, cores: usize| {
            let peers: Vec<_> = (0..ranks).map(|rank| peer(&[rank % cores])).collect();
            placement(&peers, &Settings::default()).1.look_ms
        };
        assert_eq!([look_ms(8, 2), look_ms(256, 256), look_ms(64, 2), look_ms(256, 1)], [20, 20, 160, 240]);
    }

    #[test]
    fn one_ranks_quota_counts_for_all() {
        let mut limited = peer(&[1]);
        limited.quota = Some(1.0);
        let (own_cores, patience, words) = placement(&[peer(&[0]), limited], &Settings::default());
        assert!(!own_cores, "{words}");
        assert_eq!(patience, Patience::SHARED_CORE);
    }
}
