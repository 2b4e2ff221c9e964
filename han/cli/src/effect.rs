//! Options that some collectives have no use for.

use han::Collective;

/// An error for an option, if it was `given`, that is for collectives of one kind while none of the `chosen` ones is.
pub(crate) fn check(
    option: &str,
    given: bool,
    is_for: fn(Collective) -> bool,
    chosen: &[Collective],
) -> Result<(), String> {
    if !given || chosen.iter().any(|&one| is_for(one)) {
        return Ok(());
    }
    let names = |all: &mut dyn Iterator<Item = Collective>| all.map(Collective::name).collect::<Vec<_>>().join(", ");
    let (chosen, others) =
        (names(&mut chosen.iter().copied()), names(&mut Collective::ALL.into_iter().filter(|&one| is_for(one))));
    Err(format!("{option} has no effect on {chosen}: it is for {others}"))
}
