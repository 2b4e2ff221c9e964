//! SOLO: the form in which each rank does its part in all ranks' own vectors, copying each byte once.

pub(crate) mod joint;
mod spread;

pub(crate) use spread::pays as pays_to_hand_on;
