// Stands in for a library that is known by its name alone (libmpi, libnccl).
extern "C" int shoal_fake_library() { return 1; }
