#include "shoal/vector/step/space_codec.h"

#include <fmt/format.h>

#include "shoal/env/json_text.h"
#include "shoal/env/space_json.h"
#include "shoal/os/error.h"

namespace shoal::vector {

void put_space(process::ByteWriter& writer, const env::Space& space) {
  writer.text(env::space_to_json(space).dump());
}

env::Space get_space(process::ByteReader& reader) {
  const auto json = env::parse_json(reader.text());
  if (json.is_discarded()) throw Error("a worker's space is no JSON");
  return env::space_from_json(json);
}

}  // namespace shoal::vector
