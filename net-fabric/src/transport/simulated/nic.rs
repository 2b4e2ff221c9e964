//! A node's door to the network: what it can inject is shared by the messages that leave at the same time.

use super::machine::Seconds;

/// Fewer bytes than this are none: clocks are rounded.
const NOTHING_BYTES: f64 = 1e-3;

/// A message on its way through the door.
struct Flow {
    message: usize,
    left_bytes: f64,
    /// What its sender can do alone, in bytes a second.
    cap: f64,
    rate: f64,
}

/// The door of one node.
pub(super) struct Nic {
    /// Bytes a second.
    limit: f64,
    flows: Vec<Flow>,
    /// When the flows were as they are written down.
    since: Seconds,
    /// Counts the changes: a time that was computed before the last one is void.
    pub(super) version: u32,
    /// Whether rates are to be shared out anew at this very moment.
    pub(super) unsettled: bool,
}

impl Nic {
    pub(super) fn new(limit: f64) -> Self {
        Self { limit, flows: Vec::new(), since: 0.0, version: 0, unsettled: false }
    }

    /// Another message leaves from now on; [`settle`](Self::settle) must follow before time passes.
    pub(super) fn join(&mut self, now: Seconds, message: usize, bytes: f64, cap: f64) {
        self.pass(now);
        self.flows.push(Flow { message, left_bytes: bytes, cap, rate: 0.0 });
    }

    /// Shares the limit out: equally, but nobody gets more than its cap. Gives the next end.
    pub(super) fn settle(&mut self) -> Option<Seconds> {
        self.version = self.version.wrapping_add(1);
        self.unsettled = false;
        self.flows.sort_by(|one, other| one.cap.total_cmp(&other.cap));
        let mut room = self.limit;
        let mut others = self.flows.len();
        for flow in &mut self.flows {
            #[allow(clippy::cast_precision_loss)] // ranks of a node
            let share = room / others as f64;
            flow.rate = flow.cap.min(share);
            room -= flow.rate;
            others -= 1;
        }
        self.flows.iter().map(|flow| self.since + flow.left_bytes / flow.rate).min_by(f64::total_cmp)
    }

    /// Takes out the messages that have left by now. So have those whose rest takes less than the clock tells apart: it
    /// would stand still for them.
    pub(super) fn ended(&mut self, now: Seconds) -> Vec<usize> {
        self.pass(now);
        let has_left = |flow: &mut Flow| flow.left_bytes <= NOTHING_BYTES || now + flow.left_bytes / flow.rate <= now;
        self.flows.extract_if(.., has_left).map(|flow| flow.message).collect()
    }

    fn pass(&mut self, now: Seconds) {
        for flow in &mut self.flows {
            flow.left_bytes -= flow.rate * (now - self.since);
        }
        self.since = now;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn end(nic: &mut Nic) -> (Seconds, Vec<usize>) {
        let at = nic.settle().unwrap();
        (at, nic.ended(at))
    }

    #[test]
    fn equal_messages_share_and_end_together() {
        let mut nic = Nic::new(100.0);
        for message in 0..4 {
            nic.join(1.0, message, 50.0, 40.0);
        }
        assert_eq!(end(&mut nic), (3.0, vec![0, 1, 2, 3]));
        assert_eq!(nic.settle(), None);
    }

    #[test]
    fn a_lone_message_is_as_fast_as_its_sender() {
        let mut nic = Nic::new(100.0);
        nic.join(0.0, 7, 80.0, 40.0);
        assert_eq!(end(&mut nic), (2.0, vec![7]));
    }

    #[test]
    fn a_late_clock_does_not_stand_still() {
        let mut nic = Nic::new(1e10);
        nic.join(1e6, 0, 0.25, f64::INFINITY);
        assert_eq!(end(&mut nic), (1e6, vec![0]));
    }

    #[test]
    fn who_leaves_gives_way() {
        let mut nic = Nic::new(100.0);
        nic.join(0.0, 0, 50.0, 90.0);
        nic.join(0.0, 1, 140.0, 90.0);
        assert_eq!(end(&mut nic), (1.0, vec![0]));
        assert_eq!(end(&mut nic), (2.0, vec![1]), "50 bytes shared, then 90 alone");
    }

    #[test]
    fn what_a_slow_sender_leaves_goes_to_the_others() {
        let mut nic = Nic::new(100.0);
        nic.join(0.0, 0, 90.0, 90.0);
        nic.join(0.0, 1, 20.0, 10.0);
        assert_eq!(end(&mut nic), (1.0, vec![0]));
        assert_eq!(end(&mut nic), (2.0, vec![1]));
    }
}
