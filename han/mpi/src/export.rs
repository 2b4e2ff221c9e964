//! How functions get their two names.
//!
//! Programs call `MPI_Bcast`. The Fortran interfaces of Open MPI, and tools that see every call before the MPI does,
//! call `PMPI_Bcast`: those calls come here, too, with handles and special addresses already turned into C's.

/// Defines functions that return an MPI error code, each under its name and its name in the profiling interface.
macro_rules! export {
    ($(fn $name:ident, $profiled:ident ($($argument:ident: $kind:ty),*) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> std::ffi::c_int $body

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $profiled($($argument: $kind),*) -> std::ffi::c_int {
            // SAFETY: one function, whose arguments are the caller's own.
            unsafe { $name($($argument),*) }
        }
    )*};
}

pub(crate) use export;
