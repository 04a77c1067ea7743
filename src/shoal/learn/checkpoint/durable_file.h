// Files and directories that are there whole or not at all, whatever dies in between.
//
// Death: a process killed on any line leaves the old content or the new one in place, and at most a
// neighbour whose name contains ".tmp-", which the next replace_directory() of the same name
// removes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace shoal::learn {

/// The whole file. Throws SystemError.
std::vector<std::byte> read_file(const std::filesystem::path& path);

/// Replaces `path` by these bytes: written beside it, synced, renamed, directory synced. Throws
/// SystemError.
void replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
void replace_file(const std::filesystem::path& path, const std::string& text);

/// Makes the file `path` of these bytes, or pieces, end to end, and syncs it: what
/// replace_directory()'s `fill` calls. Throws SystemError.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file(const std::filesystem::path& path,
                std::span<const std::span<const std::byte>> pieces);

/// Makes the directory, and those above it that are not there, each synced in the one that has it. Throws
/// SystemError.
void make_directories(const std::filesystem::path& path);

/// Replaces the directory `path` by one that `fill` writes files into, at once for every reader: it
/// is filled beside its place, synced, and exchanged by renameat2(RENAME_EXCHANGE). Where the file
/// system has no exchange, `path` is absent between two renames and its old content is `path` +
/// ".old"; find_directory() knows. When `fill` throws, nothing changes. Missing parents are made.
/// One process at a time per `path`. Throws SystemError.
void replace_directory(const std::filesystem::path& path,
                       const std::function<void(const std::filesystem::path& directory)>& fill);

/// `path`, or `path` + ".old" when only that is there. `path` when neither is.
std::filesystem::path find_directory(const std::filesystem::path& path);

/// Calls `read` with what find_directory() finds; again where it throws an Error, and
/// replace_directory() has put another in that place meanwhile.
void read_directory(const std::filesystem::path& path,
                    const std::function<void(const std::filesystem::path& directory)>& read);

}  // namespace shoal::learn
