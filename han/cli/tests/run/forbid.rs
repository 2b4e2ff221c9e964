//! System calls that are refused.
#![allow(unsafe_code)] // prctl has no safe wrapper for filters

use nix::libc;

/// From now on the kernel refuses `call` to this process, as a container's filter would.
pub(crate) fn forbid(call: libc::c_long) {
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf, k };
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, u32::try_from(call).unwrap()),
        step(libc::BPF_RET | libc::BPF_K, 0, ERRNO | u32::try_from(libc::EPERM).unwrap()),
        step(libc::BPF_RET | libc::BPF_K, 0, ALLOW),
    ];
    let filter = libc::sock_fprog { len: u16::try_from(program.len()).unwrap(), filter: program.as_mut_ptr() };
    // SAFETY: takes numbers only.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program lives until the kernel has copied it.
    let outcome = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}
