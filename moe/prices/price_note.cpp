#include "moe/prices/price_note.h"

namespace moe {

std::string PriceNote::label() const {
  switch (kind) {
    case Kind::weak:
      return "weak row";
    case Kind::nearest:
      return "nearest";
    case Kind::scaled:
      return "scaled";
    case Kind::derived:
      return "derived";
    case Kind::modelled:
      return "modelled";
    case Kind::by_gemm:
      return "priced by gemm";
    case Kind::outside:
      return "outside the measured range";
    case Kind::node_limit:
      return "node limit";
    case Kind::not_priced:
      return "not priced";
    case Kind::degree_above:
      return "degree above T_rank";
    case Kind::degree_limit:
      return "degree limit";
    case Kind::origin:
      return subject;
  }
  return {};
}

std::set<std::string> texts_of(const PriceNotes& notes) {
  std::set<std::string> texts;
  for (const PriceNote& note : notes) texts.insert(note.text());
  return texts;
}

std::string weak_rows(const PriceNotes& notes) {
  std::string text;
  for (const PriceNote& note : notes)
    if (note.kind == PriceNote::Kind::weak) text += (text.empty() ? "" : "; ") + note.about();
  return text;
}

}  // namespace moe
