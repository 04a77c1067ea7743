#include "shoal/collect/replay/replay.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "shoal/os/error.h"
#include "shoal/os/testing/message_of.h"

namespace shoal::collect {
namespace {

using os::testing::message_of;
using shm::DType;
using testing::HasSubstr;
using testing::IsEmpty;

/// Two leaves, so that rows are gathered and spread; the action has three elements.
ReplaySpec spec_of(int columns, std::int64_t rows, bool prioritized) {
  return {.obs = {{DType::kF32, {2}}, {DType::kU8, {3}}},
          .action = {DType::kI32, {3}},
          .columns = columns,
          .rows = rows,
          .prioritized = prioritized};
}

/// One row of both leaves, all of it from a number.
struct Observation {
  std::array<float, 2> dense{};
  std::array<std::uint8_t, 3> bytes{};

  explicit Observation(int number) {
    dense = {static_cast<float>(number), static_cast<float>(-number)};
    bytes.fill(static_cast<std::uint8_t>(number % 251));
  }
  std::vector<shm::TensorView> views() {
    return {{reinterpret_cast<std::byte*>(dense.data()), 1, {DType::kF32, {2}}},
            {reinterpret_cast<std::byte*>(bytes.data()), 1, {DType::kU8, {3}}}};
  }
};

struct Row {
  int obs = 0;
  int action = 0;
  float reward = 0;
  bool terminated = false, truncated = false, valid = true;
};

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

ReplayRandom random_of(std::uint64_t seed) {
  return [seed](std::uint32_t sample, std::uint32_t attempt) {
    return mixed(seed * 1'000'003 + (std::uint64_t{sample} << 32 | attempt));
  };
}

/// All that was ever appended, in plain memory: what a replay has to agree with.
class Oracle {
 public:
  Oracle(Replay& replay, int columns, std::int64_t rows)
      : replay_(replay), rows_(rows), history_(static_cast<std::size_t>(columns)) {}

  void begin(int column) {
    auto& rows = history_[static_cast<std::size_t>(column)];
    if (!rows.empty()) rows.back().valid = false;
    Observation obs(++number_);
    replay_.begin(column, obs.views(), 0);
    rows.push_back({.obs = number_});
    forget_what_is_gone();
  }

  void step(int column, Row row) {
    auto& rows = history_[static_cast<std::size_t>(column)];
    row.obs = rows.back().obs;
    row.action = ++number_;
    const std::array<std::int32_t, 3> action = {row.action, -row.action, 7};
    Observation next(++number_);
    replay_.step(column,
                 {.action = reinterpret_cast<const std::byte*>(action.data()),
                  .reward = row.reward,
                  .terminated = row.terminated,
                  .truncated = row.truncated,
                  .valid = row.valid},
                 next.views(), 0);
    rows.back() = row;
    rows.push_back({.obs = number_});
    if (row.valid) priority_[{column, rows.size() - 2}] = greatest_;
    forget_what_is_gone();
  }

  void forget_what_is_gone() {
    std::erase_if(priority_, [this](const auto& entry) {
      return !is_there(entry.first.first, entry.first.second);
    });
  }

  bool is_there(int column, std::uint64_t row) const {
    const auto whole = history_[static_cast<std::size_t>(column)].size() - 1;
    return row < whole && row + static_cast<std::uint64_t>(rows_) > whole;
  }

  /// A window in double precision, by the definition.
  void expect_window(const ReplaySamples& samples, std::size_t k, int n_step) const {
    const auto [column, first] = samples.picks[k];
    ASSERT_TRUE(is_there(column, first));
    const auto& rows = history_[static_cast<std::size_t>(column)];
    ASSERT_TRUE(rows[first].valid);
    int steps = 0;
    bool ended = false;
    while (steps < n_step && !ended && first + static_cast<std::size_t>(steps) + 1 < rows.size() &&
           rows[first + static_cast<std::size_t>(steps)].valid) {
      const Row& row = rows[first + static_cast<std::size_t>(steps)];
      EXPECT_EQ(
          samples.rewards[k * static_cast<std::size_t>(n_step) + static_cast<std::size_t>(steps)],
          row.reward);
      ended = row.terminated || row.truncated;
      ++steps;
    }
    ASSERT_EQ(samples.steps[k], steps);
    for (int s = steps; s < n_step; ++s)
      EXPECT_EQ(samples.rewards[k * static_cast<std::size_t>(n_step) + static_cast<std::size_t>(s)],
                0);
    const Row& last = rows[first + static_cast<std::size_t>(steps) - 1];
    EXPECT_EQ(samples.terminated[k] != 0, last.terminated);
    EXPECT_EQ(samples.truncated[k] != 0, last.truncated);
    expect_observation(samples.obs, k, rows[first].obs);
    expect_observation(samples.next_obs, k, rows[first + static_cast<std::size_t>(steps)].obs);
    std::array<std::int32_t, 3> action{};
    std::memcpy(action.data(), samples.action.row_data(static_cast<std::int64_t>(k)),
                sizeof action);
    EXPECT_EQ(action[0], rows[first].action);
    EXPECT_EQ(action[1], -rows[first].action);
  }

  static void expect_observation(const std::vector<shm::TensorView>& leaves, std::size_t k,
                                 int number) {
    const Observation wanted(number);
    const auto row = static_cast<std::int64_t>(k);
    EXPECT_EQ(std::memcmp(leaves[0].row_data(row), wanted.dense.data(), sizeof wanted.dense), 0);
    EXPECT_EQ(std::memcmp(leaves[1].row_data(row), wanted.bytes.data(), sizeof wanted.bytes), 0);
  }

  /// Which row stratum k's target falls on, and how near it is to another's, in double precision.
  std::pair<ReplayPick, double> by_priority(std::uint32_t k, std::uint32_t samples,
                                            double u) const {
    std::map<std::pair<int, std::uint64_t>, double> by_place;  // the order of the tree
    double total = 0;
    for (const auto& [row, p] : priority_) {
      by_place[{row.first, row.second % static_cast<std::uint64_t>(rows_)}] = p;
      total += p;
    }
    const double target = total * (k + u) / samples;
    double sum = 0;
    for (const auto& [place, p] : by_place) {
      if (target < sum + p) {
        const auto whole = history_[static_cast<std::size_t>(place.first)].size() - 1;
        std::uint64_t row = whole - 1;
        while (row % static_cast<std::uint64_t>(rows_) != place.second) --row;
        return {{place.first, row}, std::min(target - sum, sum + p - target)};
      }
      sum += p;
    }
    return {{}, 0};
  }

  double weight(const ReplayPick& pick, double beta) const {
    double least = 1e300;
    for (const auto& [row, p] : priority_) least = std::min(least, p);
    return std::pow(least / priority_.at({pick.column, pick.row}), beta);
  }

  void set_priority(const ReplayPick& pick, double p) {
    const auto found = priority_.find({pick.column, pick.row});
    if (found == priority_.end()) return;
    found->second = p;
    greatest_ = std::max(greatest_, p);
  }

  std::size_t transitions() const { return priority_.size(); }
  const auto& priorities() const { return priority_; }

 private:
  Replay& replay_;
  std::int64_t rows_;
  std::vector<std::vector<Row>> history_;  // the last one has its observation alone
  std::map<std::pair<int, std::uint64_t>, double> priority_;
  double greatest_ = 1;
  int number_ = 0;
};

Row any_row(std::mt19937& dice) {
  const auto kind = dice() % 12;
  return {.reward = static_cast<float>(static_cast<int>(dice() % 200) - 100) / 8.0F,
          .terminated = kind == 0,
          .truncated = kind == 1,
          .valid = kind != 2};
}

class Programs : public testing::TestWithParam<unsigned> {};

TEST_P(Programs, SamplesAreThoseOfThePlainDefinition) {
  std::mt19937 dice(GetParam());
  const int columns = 1 + static_cast<int>(dice() % 4);
  const auto rows = static_cast<std::int64_t>(4 + dice() % 20);
  Replay replay = Replay::create(spec_of(columns, rows, true));
  Oracle oracle(replay, columns, rows);
  for (int c = 0; c < columns; ++c) oracle.begin(c);
  ReplaySamples samples;
  for (std::uint64_t turn = 0; turn < 400; ++turn) {
    const auto column = static_cast<int>(dice() % static_cast<unsigned>(columns));
    if (dice() % 20 == 0)
      oracle.begin(column);
    else
      oracle.step(column, any_row(dice));
    const int n_step = 1 + static_cast<int>(dice() % 4);
    const bool prioritized = dice() % 2 == 0;
    const ReplayRequest request{.samples = 1 + static_cast<int>(dice() % 8),
                                .n_step = n_step,
                                .prioritized = prioritized,
                                .beta = 0.5,
                                .random = random_of(turn)};
    const bool found = replay.sample(request, samples);
    ASSERT_EQ(found, oracle.transitions() > 0);
    if (!found) continue;
    for (std::size_t k = 0; k < samples.picks.size(); ++k) {
      oracle.expect_window(samples, k, n_step);
      const double weight = prioritized ? oracle.weight(samples.picks[k], 0.5) : 1.0;
      EXPECT_LE(samples.weights[k], weight * (1 + 1e-6));
      EXPECT_GE(samples.weights[k], weight * (1 - 1.0 / 32));
      if (!prioritized) continue;
      const double u =
          std::ldexp(static_cast<double>(request.random(static_cast<std::uint32_t>(k), 0)), -64);
      const auto [pick, margin] = oracle.by_priority(
          static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(request.samples), u);
      if (margin > 1e-6) {
        EXPECT_EQ(samples.picks[k], pick);
      }
    }
    std::vector<double> priorities;
    for (const ReplayPick& pick : samples.picks) {
      priorities.push_back(std::ldexp(1.0 + dice() % 100, -static_cast<int>(dice() % 8)));
      oracle.set_priority(pick, priorities.back());
    }
    replay.set_priorities(samples.picks, priorities);
    ASSERT_THAT(replay.check(), IsEmpty());
  }
  for (const auto& [row, p] : oracle.priorities())
    EXPECT_EQ(replay.priority({row.first, row.second}), p);
}

INSTANTIATE_TEST_SUITE_P(Replay, Programs, testing::Range(0U, 40U));

/// A column of these rows.
Replay filled(const std::vector<Row>& rows, bool prioritized = false, std::int64_t places = 64) {
  Replay replay = Replay::create(spec_of(1, places, prioritized));
  Oracle oracle(replay, 1, places);
  oracle.begin(0);
  for (const Row& row : rows) oracle.step(0, row);
  return replay;
}

TEST(Replay, EveryTransitionIsEquallyLikelyAndNothingElseIsDrawn) {
  std::vector<Row> rows(20);
  for (std::size_t t = 4; t < 20; t += 5) rows[t].terminated = true;
  for (std::size_t t = 5; t < 20; t += 5) rows[t].valid = false;  // next-step autoresets
  Replay replay = filled(rows);
  ReplaySamples samples;
  constexpr int kDraws = 34'000;
  ASSERT_TRUE(replay.sample({.samples = kDraws, .random = random_of(5)}, samples));
  std::map<std::uint64_t, int> counts;
  for (const ReplayPick& pick : samples.picks) ++counts[pick.row];
  ASSERT_EQ(counts.size(), 17U);
  for (const auto& [row, count] : counts) {
    EXPECT_TRUE(rows[row].valid);
    EXPECT_NEAR(count, kDraws / 17, 5 * std::sqrt(kDraws / 17.0)) << row;
  }
}

TEST(Replay, DrawsAreInProportionToPrioritiesThatAreSmallAndLarge) {
  Replay replay = filled(std::vector<Row>(6), true);
  const std::vector<double> priorities = {1, 2, 0.5, 4, 1000, 0.001};
  std::vector<ReplayPick> picks;
  for (std::uint64_t row = 0; row < 6; ++row) picks.push_back({0, row});
  replay.set_priorities(picks, priorities);
  ReplaySamples samples;
  constexpr int kDraws = 1'007'501;
  ASSERT_TRUE(replay.sample(
      {.samples = kDraws, .prioritized = true, .beta = 1, .random = random_of(1)}, samples));
  std::vector<int> counts(6);
  for (const ReplayPick& pick : samples.picks) ++counts[pick.row];
  // Strata as wide as a thousandth of the unit: each count is exact to the ends of its interval.
  for (std::size_t row = 0; row < 6; ++row)
    EXPECT_NEAR(counts[row], 1000 * priorities[row], 2) << row;
  for (std::size_t k = 0; k < samples.picks.size(); k += 997)
    EXPECT_NEAR(samples.weights[k], 0.001 / priorities[samples.picks[k].row],
                0.001 / priorities[samples.picks[k].row] / 31);
}

TEST(Replay, TheWeightsOfASampleAreByOneLeastPriorityThoughOthersChangeItMeanwhile) {
  Replay replay = filled(std::vector<Row>(4), true);
  Replay other = Replay::attach(os::Fd(::dup(replay.fd())), replay.spec());
  const auto random = [&](std::uint32_t sample, std::uint32_t) -> std::uint64_t {
    if (sample == 2)
      other.set_priorities(std::vector<ReplayPick>{{0, 3}}, std::vector<double>{0.125});
    return 0;  // the first row of each quarter
  };
  ReplaySamples samples;
  ASSERT_TRUE(
      replay.sample({.samples = 4, .prioritized = true, .beta = 1, .random = random}, samples));
  ASSERT_EQ(replay.priority({0, 3}), 0.125);
  EXPECT_EQ(samples.weights, std::vector<float>(4, 1.0F));
}

TEST(Replay, ANewRowHasTheGreatestPriorityThatWasEverSet) {
  Replay replay = filled(std::vector<Row>(3), true);
  EXPECT_EQ(replay.priority({0, 2}), 1);
  replay.set_priorities(std::vector<ReplayPick>{{0, 0}}, std::vector<double>{0.25});
  replay.set_priorities(std::vector<ReplayPick>{{0, 1}}, std::vector<double>{8});
  replay.set_priorities(std::vector<ReplayPick>{{0, 1}}, std::vector<double>{2});
  Observation obs(1);
  replay.step(0, {}, obs.views(), 0);
  EXPECT_EQ(replay.priority({0, 3}), 8);
}

// As in Schaul et al. (2016, algorithm 1), whose greatest priority begins with 1.
TEST(Replay, ANewRowHasPriority1AtTheLeast) {
  Replay replay = filled(std::vector<Row>(3), true);
  replay.set_priorities(std::vector<ReplayPick>{{0, 0}, {0, 1}}, std::vector<double>{0.25, 0.5});
  Observation obs(1);
  replay.step(0, {}, obs.views(), 0);
  EXPECT_EQ(replay.priority({0, 3}), 1);
  replay.restore(replay.contents());
  replay.step(0, {}, obs.views(), 0);
  EXPECT_EQ(replay.priority({0, 4}), 1);
}

TEST(Replay, APriorityThatComesLateDoesNotReachTheRowThatHasThePlaceNow) {
  Replay replay = filled(std::vector<Row>(12), true, 8);
  EXPECT_EQ(replay.priority({0, 3}), 0) << "gone";
  EXPECT_EQ(replay.priority({0, 11}), 1);
  replay.set_priorities(std::vector<ReplayPick>{{0, 3}}, std::vector<double>{8});
  EXPECT_EQ(replay.priority({0, 11}), 1);
  EXPECT_THAT(replay.check(), IsEmpty());
}

TEST(Replay, PrioritiesAreHeldWithinWhatSumsCanTake) {
  Replay replay = filled(std::vector<Row>(3), true);
  const std::vector<ReplayPick> picks = {{0, 0}, {0, 1}};
  replay.set_priorities(picks, std::vector<double>{0, 1e300});
  EXPECT_EQ(replay.priority({0, 0}), std::ldexp(1.0, -32));
  EXPECT_NEAR(replay.priority({0, 1}), replay.limit(), 1e-6);
  EXPECT_THAT(replay.check(), IsEmpty());
}

TEST(Replay, APriorityThatIsNoNumberIsTheLeast) {
  Replay replay = filled(std::vector<Row>(3), true);
  replay.set_priorities(std::vector<ReplayPick>{{0, 0}}, std::vector<double>{NAN});
  EXPECT_EQ(replay.priority({0, 0}), std::ldexp(1.0, -32));
  EXPECT_THAT(replay.check(), IsEmpty());
}

TEST(Replay, WithoutATransitionThereIsNothingToSample) {
  Replay replay = Replay::create(spec_of(2, 8, true));
  ReplaySamples samples;
  const ReplayRequest request{.samples = 4, .random = random_of(1)};
  EXPECT_FALSE(replay.sample(request, samples));
  Observation obs(1);
  replay.begin(0, obs.views(), 0);
  EXPECT_FALSE(replay.sample(request, samples));
  replay.step(0, {.valid = false}, obs.views(), 0);
  EXPECT_FALSE(replay.sample(request, samples));
  EXPECT_EQ(replay.size(), 1);
}

TEST(Replay, WhatIsKeptGoesOnLikeTheOriginal) {
  for (const bool prioritized : {false, true}) {
    std::mt19937 dice(4);
    Replay one = Replay::create(spec_of(3, 7, prioritized));
    Oracle oracle(one, 3, 7);
    for (int c = 0; c < 2; ++c) oracle.begin(c);  // the third has not begun
    for (int turn = 0; turn < 60; ++turn) oracle.step(static_cast<int>(dice() % 2), any_row(dice));
    if (prioritized)
      one.set_priorities(std::vector<ReplayPick>{{0, 24}, {1, 27}}, std::vector<double>{3, 0.5});
    Replay other = Replay::create(spec_of(3, 7, prioritized));
    Observation rest(9);
    other.begin(2, rest.views(), 0);  // is gone afterwards
    for (int t = 0; t < 9; ++t) other.step(2, {}, rest.views(), 0);
    other.restore(one.contents());
    EXPECT_THAT(other.check(), IsEmpty());
    for (int turn = 0; turn < 5; ++turn) {
      ReplaySamples ours, theirs;
      const ReplayRequest request{.samples = 16,
                                  .n_step = 3,
                                  .prioritized = prioritized,
                                  .beta = 1,
                                  .random = random_of(7)};
      ASSERT_TRUE(one.sample(request, ours));
      ASSERT_TRUE(other.sample(request, theirs));
      EXPECT_EQ(ours.picks, theirs.picks);
      EXPECT_EQ(ours.bytes, theirs.bytes);
      EXPECT_EQ(ours.rewards, theirs.rewards);
      EXPECT_EQ(ours.weights, theirs.weights);
      for (Replay* replay : {&one, &other}) {
        Observation next(100 + turn);
        replay->begin(2, next.views(), 0);
        replay->step(1, {.reward = 5}, next.views(), 0);
      }
    }
  }
}

TEST(Replay, WhatIsKeptTakesNoMoreMemoryThanItsRows) {
  const ReplayContents contents = filled(std::vector<Row>(41), true).contents();
  EXPECT_EQ(contents.weights.size(), 42U);
  EXPECT_EQ(contents.rows.capacity(), contents.rows.size());
  EXPECT_EQ(contents.weights.capacity(), contents.weights.size());
}

TEST(Replay, WhatAnotherKeptIsRefusedAndChangesNothing) {
  Replay replay = filled(std::vector<Row>(5), true);
  const ReplayContents before = replay.contents();
  const Replay other = filled(std::vector<Row>(5), false);
  EXPECT_THROW(replay.restore(other.contents()), InvalidArgument);
  ReplayContents wider = before;
  wider.heads.push_back(0);
  EXPECT_THROW(replay.restore(wider), InvalidArgument);
  ReplayContents shorter = before;
  shorter.rows.pop_back();
  EXPECT_THROW(replay.restore(shorter), InvalidArgument);
  EXPECT_EQ(replay.contents().rows, before.rows);
}

os::Fd duplicate(const Replay& replay) { return os::Fd(::dup(replay.fd())); }

TEST(Replay, AnotherMappingSeesTheSame) {
  Replay one = filled(std::vector<Row>(5), true);
  Replay other = Replay::attach(duplicate(one), one.spec());
  ReplaySamples ours, theirs;
  const ReplayRequest request{.samples = 8, .prioritized = true, .random = random_of(3)};
  ASSERT_TRUE(one.sample(request, ours));
  ASSERT_TRUE(other.sample(request, theirs));
  EXPECT_EQ(ours.bytes, theirs.bytes);
  other.set_priorities(std::vector<ReplayPick>{{0, 4}}, std::vector<double>{8});
  EXPECT_EQ(one.priority({0, 4}), 8);
}

TEST(Replay, WhatDoesNotFitIsRefusedWithTheReason) {
  const Replay replay = filled(std::vector<Row>(5), true);
  const auto error = [&](const ReplaySpec& spec) -> std::string {
    try {
      Replay::attach(duplicate(replay), spec);
    } catch (const InvalidArgument& refused) {
      return refused.what();
    }
    return "";
  };
  EXPECT_THAT(error(spec_of(2, 64, true)), HasSubstr("1 columns"));
  EXPECT_THAT(error(spec_of(1, 64, false)), HasSubstr("prioritised"));
  EXPECT_THROW(Replay::create(spec_of(0, 64, true)), InvalidArgument);
  EXPECT_THROW(Replay::create(spec_of(1, 1, true)), InvalidArgument);
  EXPECT_THROW(Replay::create(spec_of(1, std::int64_t{1} << 60, true)), InvalidArgument);
  const shm::Arena foreign = shm::Arena::create("not a replay", 100'000);
  EXPECT_THROW(Replay::attach(os::Fd(::dup(foreign.fd())), spec_of(1, 64, true)), Error);
}

/// What `call` throws, which is an E.
TEST(Replay, SpecsOfImpossibleArraysAreRefused) {
  ReplaySpec spec = spec_of(1, 8, false);
  spec.obs[0].shape = {-4};
  EXPECT_THAT(message_of<InvalidArgument>([&] { Replay::create(spec); }),
              HasSubstr("observations float32 [-4]"));
  spec = spec_of(1, 8, false);
  spec.action.shape = {-1};
  EXPECT_THAT(message_of<InvalidArgument>([&] { Replay::create(spec); }),
              HasSubstr("actions int32 [-1]"));
}

TEST(Replay, ArraysOfTheSameBytesButAnotherTypeOrShapeAreNotAttached) {
  const Replay replay = Replay::create(spec_of(1, 8, true));
  for (const shm::TensorSpec& other :
       {shm::TensorSpec{DType::kI32, {2}}, shm::TensorSpec{DType::kF32, {1, 2}}}) {
    ReplaySpec spec = replay.spec();
    spec.obs[0] = other;
    EXPECT_THAT(message_of<InvalidArgument>([&] { Replay::attach(duplicate(replay), spec); }),
                HasSubstr("other element types or shapes"));
  }
}

TEST(Replay, RowsThatDoNotFitAreRefusedAndAppendNothing) {
  Replay replay = Replay::create(spec_of(2, 8, true));
  Observation obs(1);
  auto views = obs.views();
  const auto refused = [&](int column, std::int64_t from, auto spoil) {
    auto spoilt = views;
    spoil(spoilt);
    const std::string text =
        message_of<InvalidArgument>([&] { replay.begin(column, spoilt, from); });
    EXPECT_EQ(message_of<InvalidArgument>([&] { replay.step(column, {}, spoilt, from); }), text);
    return text;
  };
  const auto whole = [](auto&) {};
  EXPECT_THAT(message_of<InvalidState>([&] { replay.step(0, {}, views, 0); }),
              HasSubstr("column 0 has no first observation"));
  for (const int column : {-1, 2}) EXPECT_THAT(refused(column, 0, whole), HasSubstr("which has 2"));
  for (const int row : {-1, 1})
    EXPECT_THAT(refused(0, row, whole), HasSubstr(fmt::format("row {} of array 0", row)));
  EXPECT_THAT(refused(0, 0, [](auto& all) { all.pop_back(); }), HasSubstr("1 arrays"));
  EXPECT_THAT(refused(0, 0, [](auto& all) { all[0].row.dtype = DType::kF64; }),
              HasSubstr("array 0 are float64 [2], those of the replay are float32 [2]"));
  EXPECT_THAT(refused(0, 0, [](auto& all) { all[1].row.shape = {2}; }), HasSubstr("uint8 [2]"));
  EXPECT_THAT(refused(0, 0, [](auto& all) { all[1].data = nullptr; }), HasSubstr("0 rows"));
  EXPECT_EQ(replay.size(), 0);
  EXPECT_THAT(replay.check(), IsEmpty());
}

TEST(Replay, PrioritiesAreOfItsColumnsAndAsManyAsThePicks) {
  Replay replay = filled(std::vector<Row>(5), true);
  const std::vector<double> one{1};
  EXPECT_THAT(message_of<InvalidArgument>(
                  [&] { replay.set_priorities(std::vector<ReplayPick>{{0, 1}, {0, 2}}, one); }),
              HasSubstr("1 for 2 picks"));
  for (const int column : {-1, 7}) {
    const std::vector<ReplayPick> pick{{column, 3}};
    EXPECT_THAT(message_of<InvalidArgument>([&] { replay.set_priorities(pick, one); }),
                HasSubstr("no column"));
    EXPECT_THAT(message_of<InvalidArgument>([&] { static_cast<void>(replay.priority(pick[0])); }),
                HasSubstr("no column"));
  }
  Replay plain = filled(std::vector<Row>(5), false);
  EXPECT_THAT(message_of<InvalidState>([&] { static_cast<void>(plain.limit()); }),
              HasSubstr("make it prioritised"));
  EXPECT_THAT(message_of<InvalidState>([&] { static_cast<void>(plain.priority({0, 3})); }),
              HasSubstr("make it prioritised"));
  ReplaySamples samples;
  EXPECT_THAT(message_of<InvalidArgument>([&] { static_cast<void>(plain.sample({}, samples)); }),
              HasSubstr("`random`"));
}

TEST(Replay, AsOneOfTooManyMembersItIsRefusedUntilAnotherLeaves) {
  const Replay first = filled(std::vector<Row>(5), true);
  std::vector<Replay> members;
  for (std::size_t k = 1; k < Replay::kMostMembers; ++k)
    members.push_back(Replay::attach(duplicate(first), first.spec()));
  EXPECT_THROW(Replay::attach(duplicate(first), first.spec()), InvalidState);
  members.pop_back();
  EXPECT_NO_THROW(Replay::attach(duplicate(first), first.spec()));
}

TEST(Replay, ThreadsThatWriteAndReadAtOnceTearNothing) {
  constexpr int kWriters = 3;
  constexpr int kSteps = 4000;
  Replay first = Replay::create(spec_of(kWriters, 16, true));
  std::atomic<int> writing = kWriters;
  std::atomic<int> torn = 0;
  std::vector<std::thread> threads;
  for (int c = 0; c < kWriters; ++c) {
    threads.emplace_back([&, c] {
      Replay replay = Replay::attach(duplicate(first), first.spec());
      Observation obs(0);
      replay.begin(c, obs.views(), 0);
      for (int t = 1; t <= kSteps; ++t) {
        Observation next(t);
        const std::array<std::int32_t, 3> action = {t, t, t};
        replay.step(c,
                    {.action = reinterpret_cast<const std::byte*>(action.data()),
                     .reward = static_cast<float>(t)},
                    next.views(), 0);
      }
      --writing;
    });
  }
  for (std::uint64_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Replay replay = Replay::attach(duplicate(first), first.spec());
      ReplaySamples samples;
      for (std::uint64_t turn = 0; writing > 0; ++turn) {
        const ReplayRequest request{.samples = 8,
                                    .n_step = 2,
                                    .prioritized = turn % 2 == 0,
                                    .beta = 0.4,
                                    .random = random_of(r << 32 | turn)};
        if (!replay.sample(request, samples)) continue;
        std::vector<double> priorities;
        for (std::size_t k = 0; k < samples.picks.size(); ++k) {
          std::array<float, 2> obs{}, next{};
          const auto row = static_cast<std::int64_t>(k);
          std::memcpy(obs.data(), samples.obs[0].row_data(row), sizeof obs);
          std::memcpy(next.data(), samples.next_obs[0].row_data(row), sizeof next);
          const auto t = static_cast<float>(samples.picks[k].row);
          torn += obs[0] != t || obs[1] != -t || samples.rewards[2 * k] != t + 1 ||
                  next[0] != t + static_cast<float>(samples.steps[k]);
          priorities.push_back(1.0 + static_cast<double>(turn % 7));
        }
        replay.set_priorities(samples.picks, priorities);
        if (turn % 64 == 0) replay.repair();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  EXPECT_THAT(first.check(), IsEmpty());
}

}  // namespace
}  // namespace shoal::collect
