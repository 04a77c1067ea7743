// JSON that comes from elsewhere.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace shoal::env {

/// How deep our files and messages may nest arrays and objects: 64 spaces within one another take
/// three each. What uses a parsed document (dump(), a copy) recurses.
inline constexpr int kMaxJsonDepth = 256;

/// Whether `text` nests deeper than that. Says nothing else of it.
bool nests_too_deep(std::string_view text) noexcept;

/// The document; is_discarded() where the text is no JSON, or nests too deep.
nlohmann::json parse_json(std::string_view text);

}  // namespace shoal::env
