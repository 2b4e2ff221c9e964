//! How functions get their two names.
//!
//! Programs call `MPI_Bcast`. The Fortran interfaces of Open MPI, and tools that see every call before the MPI does,
//! call `PMPI_Bcast`: those calls come here, too, with handles and special addresses already turned into C's.
//!
//! A tool in front of this library, in the program or preloaded before it, gets the program's calls and makes them here. One
//! behind it, linked or preloaded after it, would not: so a call by the program's name goes to the tool first, and comes back by the
//! name in the profiling interface.
//!
//! A program's error handler may leave the MPI function that calls it by an exception of C++. So these functions, and the
//! types by which the library's are called, are `C-unwind`, and what must be undone then is undone by destructors.

/// Defines functions that return an MPI error code, each under its name and its name in the profiling interface.
///
/// What they do has a name of its own: by one of these two it would be looked up like any other, and found in a tool.
macro_rules! export {
    ($(fn $name:ident, $profiled:ident ($($argument:ident: $kind:ty),*) $body:block)*) => {$(const _: () = {
        #[allow(clippy::too_many_arguments)] // as many as MPI wants
        unsafe fn carry_out($($argument: $kind),*) -> std::ffi::c_int $body

        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($argument: $kind),*) -> std::ffi::c_int {
            type This = unsafe extern "C-unwind" fn($($kind),*) -> std::ffi::c_int;
            static TOOL: std::sync::OnceLock<Option<This>> = std::sync::OnceLock::new();
            // SAFETY: whoever defines a function of this name gives it the type that the MPI standard does.
            let tool = TOOL.get_or_init(|| unsafe {
                $crate::real::tool($crate::real::name(concat!(stringify!($name), "\0")))
            });
            match tool {
                // SAFETY: the arguments are the caller's own.
                Some(tool) => unsafe { tool($($argument),*) },
                // SAFETY: as above.
                None => unsafe { carry_out($($argument),*) },
            }
        }

        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $profiled($($argument: $kind),*) -> std::ffi::c_int {
            // SAFETY: the arguments are the caller's own.
            unsafe { carry_out($($argument),*) }
        }
    };)*};
}

pub(crate) use export;
