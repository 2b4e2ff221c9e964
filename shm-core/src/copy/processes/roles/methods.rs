//! Methods that settings or the system forbid.
#![allow(unsafe_code)] // gives up rights and forbids system calls

use super::Rank;
use crate::copy::described::Described;
use crate::copy::{Access, Method};
use crate::exchange::Exchange;
use crate::memory::SharedVec;

/// Root may look into every process: only without its rights can one be refused.
pub(super) fn drop_to_nobody() {
    if nix::unistd::geteuid().is_root() {
        nix::unistd::setgid(65534.into()).unwrap();
        nix::unistd::setuid(65534.into()).unwrap();
    }
}

/// As containers do: the calls fail with EPERM from now on.
pub(super) fn forbid_kernel_copies() {
    let statement = |code: u32, k: u32| libc::sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf: 0, k };
    let jump = |number: libc::c_long, over: u8| libc::sock_filter {
        jt: over,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, u32::try_from(number).unwrap())
    };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0), // the system call's number
        jump(libc::SYS_process_vm_readv, 2),
        jump(libc::SYS_process_vm_writev, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, refuse),
    ];
    let program = libc::sock_fprog { len: 5, filter: filter.as_mut_ptr() };
    // SAFETY: prctl reads no memory for this option.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program and its five statements are alive; the kernel copies them.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(set, 0);
}

impl Rank {
    pub(super) fn without(&mut self, set: &str) {
        let own = self.number();
        let peer = 1 - own;
        let methods = self.job.methods();
        for method in [Method::Shared, Method::Cma] {
            assert_eq!(methods.has(method), set.contains(method.name()), "{set}: {methods}");
            assert!(methods.has(method) || methods.verdict(method).contains("was set"), "{methods}");
        }
        let shared = SharedVec::<u64>::zeroed(&self.job, 10).unwrap();
        assert_eq!(shared.is_shared(), set.contains("shared"));
        let ordinary = [0_u64; 10];
        let shared = self.describe(shared.as_ptr().cast(), 80);
        let ordinary = self.describe(ordinary.as_ptr().cast(), 80);
        let resolve = |what: &Described| self.job.reach().resolve(peer, what);
        match set {
            "methods=cico" => {
                let error = resolve(&shared[peer]).unwrap_err().to_string();
                assert!(error.contains("cma is off: methods=cico was set"), "{error}");
                assert!(resolve(&ordinary[peer]).is_err());
            }
            "methods=cma" => {
                assert!(matches!(resolve(&shared[peer]), Ok(Access::Kernel(_))));
                assert!(matches!(resolve(&ordinary[peer]), Ok(Access::Kernel(_))));
            }
            _ => {
                assert!(matches!(resolve(&shared[peer]), Ok(Access::Mapped(_))));
                assert!(resolve(&ordinary[peer]).is_err());
            }
        }
        self.meet();
    }

    /// The last rank may map, but not copy.
    pub(super) fn filtered(&mut self) {
        let methods = self.job.methods();
        assert!(methods.has(Method::Shared) && !methods.has(Method::Cma), "{methods}");
        let last = self.job.size() - 1;
        let verdict = methods.verdict(Method::Cma);
        assert!(verdict.starts_with(&format!("off: rank {last}: memory of rank")), "{verdict}");
        assert!(verdict.contains("process_vm_readv is refused (EPERM)") && verdict.contains("seccomp"), "{verdict}");
        let ordinary = [0_u64; 10];
        let all = self.describe(ordinary.as_ptr().cast(), 80);
        let error = self.job.reach().resolve(last - self.number(), &all[last - self.number()]).unwrap_err();
        assert!(error.to_string().contains("not shared memory"), "{error}");
        self.meet();
    }

    /// The last rank lets nobody look into it.
    pub(super) fn guarded(&mut self) {
        let methods = self.job.methods();
        for method in [Method::Shared, Method::Cma] {
            assert!(!methods.has(method), "{methods}");
            let verdict = methods.verdict(method);
            assert!(verdict.starts_with("off: rank "), "{verdict}");
        }
        assert!(methods.verdict(Method::Cma).contains("not dumpable"), "{methods}");
        let all = self.exchange.allgather(self.job.methods().to_string().as_bytes()).unwrap();
        assert!(all.iter().all(|words| *words == all[0]), "all agree");
    }
}
