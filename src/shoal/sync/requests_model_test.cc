// The protocols under the model service, claims of rows and replies, under the Relacy model
// checker, as in model_test.cc: the steps are those of serve::Client and serve::Server.
#include <gtest/gtest.h>

#include "shoal/sync/doorbell.h"
#include "shoal/sync/reply_word.h"
#include "shoal/sync/row_claims.h"

// Last, since it redefines keywords.
#include "shoal/sync/testing/model.h"

namespace shoal::sync {
namespace {

using namespace testing;

/// A step that is left out or moved, to see that the checker notices.
enum class Broken {
  kNothing,
  kAnnouncesLate,     // a claimer claims first
  kEndsEarly,         // … takes its announcement back before its row is ready
  kRingsForRowsOnly,  // … and tells nobody so where it got no row
  kWaitsForReady,     // a full batch does not leave while none of its rows is ready
  kFreesAtOnce,       // a buffer is used again although a missed claimer may still write to it
  kAnswersUnbegun,    // a row is answered although its asker has gone on
  kReusesAbandoned,   // a slot is used again while its abandoned reply is being written
};

/// What may happen beside rows and replies.
struct Course {
  bool owner_is_patient = false;  // it waits for every announced row
  bool asker_cancels = false;
  bool claimer_dies = false;
};

/// Two claim rows of one batch, one of them 1 and the other 2, while its owner opens and closes it:
/// how many rows are claimed says whose they are.
template <Fault kFault>
struct ClaimsModel : rl::test_suite<ClaimsModel<kFault>, 3> {
  static constexpr std::uint32_t kClaimers = 2;
  static constexpr std::uint32_t kRows = 3;
  static constexpr int kNobody = -1;
  BasicRowClaims<ModelAtomics<kFault>> claims;
  rl::var<int> prepared;              // by the owner, before it opens
  rl::var<int> announced[kClaimers];  // by a claimer, before it claims
  rl::var<int> claimers[kRows];       // by who has the row
  std::uint32_t given[kClaimers];
  std::uint32_t counted;

  void before() {
    claims.close();
    prepared($) = 0;
    for (auto& word : announced) word($) = 0;
    for (auto& claimer : claimers) claimer($) = kNobody;
    for (auto& count : given) count = 0;
    counted = 0;
  }

  void thread(unsigned index) {
    if (index == 0) {
      own();
    } else {
      claim(index - 1);
    }
  }

  void own() {
    prepared($) = 1;
    claims.open();
    counted = claims.close();
    for (std::uint32_t me = 0; me < kClaimers; ++me) {
      if ((counted & (me + 1)) != 0) RL_ASSERT(announced[me]($) == 1);
    }
  }

  void claim(std::uint32_t me) {
    announced[me]($) = 1;
    const RowRange range = claims.claim(me + 1, kRows);
    if (range.count == 0) return;
    RL_ASSERT(prepared($) == 1);
    RL_ASSERT(range.count == me + 1);
    for (std::uint32_t row = range.first; row < range.first + range.count; ++row) {
      RL_ASSERT(claimers[row]($) == kNobody);
      claimers[row]($) = static_cast<int>(me);
    }
    given[me] = range.count;
  }

  void after() { RL_ASSERT(counted == given[0] + given[1] && claims.claimed() == counted); }
};

/// Two claimers, each with one slot for its replies, put `kItems` rows each into the open one of
/// two buffers of `kRows`; the owner takes batches, leaves without the late and answers the others.
/// The second claimer may die between any two steps.
template <Fault kFault, Broken kBroken, Course kCourse, std::uint32_t kRows = 2, int kItems = 2>
struct BatchModel : rl::test_suite<BatchModel<kFault, kBroken, kCourse, kRows, kItems>, 3> {
  using Atomics = ModelAtomics<kFault>;
  static constexpr std::uint32_t kBuffers = 2;
  static constexpr std::uint32_t kClaimers = 2;
  static constexpr unsigned kSteps = 24;  // of a claimer, more or less
  static constexpr unsigned kFar = 40;    // steps of the others
  static constexpr os::Deadline kSoon = os::Deadline::min();

  struct Cell {
    rl::var<std::uint32_t> claimer;
    rl::var<std::uint32_t> generation;
    rl::var<int> item;
  };
  struct Claimer {
    ModelWord<kFault> claiming;  // 1 + the buffer
    ModelWord<kFault> gone;      // it has died, says the kernel
    ModelWord<kFault> over;      // it wants no more
    BasicDoorbell<Atomics> done;
    BasicReplyWord<Atomics> word;
    rl::var<int> reply;
  };
  BasicDoorbell<Atomics> work;
  BasicDoorbell<Atomics> opened;
  ModelWord<kFault> open;  // 1 + the open buffer
  BasicRowClaims<Atomics> claims[kBuffers];
  BasicRowWord<Atomics> words[kBuffers][kRows];
  Cell cells[kBuffers][kRows];
  Claimer claimers[kClaimers];

  // The owner's.
  bool known[kClaimers];                // not seen to have died
  int answered[kClaimers];              // the last item
  std::uint32_t free_buffers;           // bits
  std::uint32_t quarantined[kBuffers];  // rows that were claimed; 0: not quarantined
  // The second claimer's.
  unsigned steps_to_live;

  void before() {
    for (std::uint32_t claimer = 0; claimer < kClaimers; ++claimer) {
      known[claimer] = true;
      answered[claimer] = 0;
    }
    for (auto& rows : quarantined) rows = 0;
    for (auto& of_buffer : claims) of_buffer.close();
    free_buffers = (1u << kBuffers) - 1;
    open_buffer();
  }

  void thread(unsigned index) {
    if (index == 0) {
      own();
      return;
    }
    const std::uint32_t me = index - 1;
    steps_to_live = kCourse.claimer_dies && me == 1 ? rl::rand(kSteps) : ~0u;
    if (!ask(me)) claimers[me].gone.store(1, std::memory_order_release);
    claimers[me].over.store(1, std::memory_order_release);
    work.ring();
  }

  void after() {
    // Every buffer has come back.
    const std::uint32_t opened_one = open.load(std::memory_order_relaxed);
    const std::uint32_t open_bit = opened_one == 0 ? 0 : 1u << (opened_one - 1);
    RL_ASSERT((free_buffers | open_bit) == (1u << kBuffers) - 1);
  }

  // A claimer. Functions that return bool say whether it lives.

  /// Between any two steps: it may die, or stand still while the others go far.
  bool lives(std::uint32_t me) {
    if (rl::rand(16) == 0) {
      for (unsigned i = 0; i < kFar; ++i) rl::yield(1, $);
    }
    return me != 1 || steps_to_live-- != 0;
  }

  bool ask(std::uint32_t me) {
    Claimer& asker = claimers[me];
    for (int item = 1; item <= kItems; ++item) {
      asker.reply($) = 0;
      const std::uint32_t generation = asker.word.queue();
      if (!lives(me) || !submit(me, generation, item) || !lives(me)) return false;
      if (kCourse.asker_cancels && rl::rand(2) == 0) {
        if (!asker.word.abandon(generation) && kBroken != Broken::kReusesAbandoned) {
          await(asker, ReplyState::kFree);
        }
        continue;
      }
      await(asker, ReplyState::kDone);
      RL_ASSERT(asker.reply($) == item * 10);
      asker.word.release(generation);
      if (!lives(me)) return false;
    }
    return true;
  }

  void await(Claimer& asker, ReplyState state) {
    for (;;) {
      const std::uint32_t seen = asker.done.generation();
      if (asker.word.state() == state) return;
      static_cast<void>(asker.done.park(seen, os::kNoDeadline));
    }
  }

  bool submit(std::uint32_t me, std::uint32_t generation, int item) {
    for (bool written = false; !written;) {
      const std::uint32_t seen = opened.generation();
      const std::uint32_t now_open = open.load(std::memory_order_acquire);
      if (now_open != 0 && !write(me, now_open - 1, generation, item, written)) return false;
      if (!written) static_cast<void>(opened.park(seen, os::kNoDeadline));
    }
    return true;
  }

  bool write(std::uint32_t me, std::uint32_t buffer, std::uint32_t generation, int item,
             bool& written) {
    ModelWord<kFault>& claiming = claimers[me].claiming;
    if (kBroken != Broken::kAnnouncesLate) claiming.store(buffer + 1, std::memory_order_release);
    if (!lives(me)) return false;
    const RowRange range = claims[buffer].claim(1, kRows);
    if (!lives(me)) return false;
    if (kBroken == Broken::kAnnouncesLate) claiming.store(buffer + 1, std::memory_order_release);
    if (range.count == 1) {
      Cell& cell = cells[buffer][range.first];
      cell.claimer($) = me;
      cell.generation($) = generation;
      cell.item($) = item;
      if (!lives(me)) return false;
      if (kBroken == Broken::kEndsEarly) claiming.store(0, std::memory_order_release);
      written = words[buffer][range.first].ready();
      if (!lives(me)) return false;
    }
    claiming.store(0, std::memory_order_release);
    if (range.count == 1 || kBroken != Broken::kRingsForRowsOnly) work.ring();
    return lives(me);
  }

  // The owner.

  void own() {
    for (;;) {
      const std::uint32_t seen = work.generation();
      bool over = true;
      for (Claimer& asker : claimers) {
        over = over && asker.over.load(std::memory_order_acquire) != 0;
        if (asker.gone.load(std::memory_order_acquire) != 0) known[&asker - claimers] = false;
      }
      const bool all_back = look_at_quarantine();
      const std::uint32_t now_open = open.load(std::memory_order_relaxed);
      if (now_open != 0 && is_due(now_open - 1)) {
        take(now_open - 1);
      } else if (over && all_back) {
        return;
      } else {
        static_cast<void>(work.park(seen, os::kNoDeadline));
      }
    }
  }

  bool is_due(std::uint32_t buffer) {
    const std::uint32_t claimed = claims[buffer].claimed();
    for (std::uint32_t row = 0; row < claimed; ++row) {
      if (words[buffer][row].state() == RowState::kReady) return true;
    }
    // Full, and none of it will come.
    return claimed == kRows && kBroken != Broken::kWaitsForReady && !is_claimed(buffer);
  }

  void take(std::uint32_t buffer) {
    const std::uint32_t claimed = claims[buffer].close();
    open.store(0, std::memory_order_release);
    open_buffer();
    bool missed = false;
    for (std::uint32_t row = 0; row < claimed; ++row) {
      const bool gave_up = wait_for_straggler(buffer, row);
      if (words[buffer][row].state() == RowState::kEmpty && words[buffer][row].miss()) {
        // Of somebody who has not announced it and lives, no row is lost.
        RL_ASSERT(gave_up || !known[1]);
        missed = true;
      } else {
        answer(cells[buffer][row]);
      }
    }
    if (missed && kBroken != Broken::kFreesAtOnce) {
      quarantined[buffer] = claimed;
    } else {
      free_buffer(buffer);
    }
  }

  /// Whether it was left although its claimer has announced it.
  bool wait_for_straggler(std::uint32_t buffer, std::uint32_t row) {
    for (;;) {
      const std::uint32_t seen = work.generation();
      if (words[buffer][row].state() != RowState::kEmpty) return false;
      const bool comes = is_claimed(buffer);
      if (words[buffer][row].state() != RowState::kEmpty || !comes) return false;
      if (!kCourse.owner_is_patient && rl::rand(2) == 0) return true;
      static_cast<void>(work.park(seen, kCourse.owner_is_patient ? os::kNoDeadline : kSoon));
    }
  }

  bool is_claimed(std::uint32_t buffer) {
    for (std::uint32_t claimer = 0; claimer < kClaimers; ++claimer) {
      if (known[claimer] &&
          claimers[claimer].claiming.load(std::memory_order_acquire) == buffer + 1) {
        return true;
      }
    }
    return false;
  }

  void answer(Cell& cell) {
    const std::uint32_t claimer = cell.claimer($);
    Claimer& asker = claimers[claimer];
    if (!asker.word.begin(cell.generation($)) && kBroken != Broken::kAnswersUnbegun) return;
    const int item = cell.item($);
    RL_ASSERT(item > answered[claimer]);  // once, and in order
    answered[claimer] = item;
    asker.reply($) = item * 10;
    static_cast<void>(asker.word.finish(cell.generation($)));
    asker.done.ring();
  }

  bool look_at_quarantine() {
    bool all_back = true;
    for (std::uint32_t buffer = 0; buffer < kBuffers; ++buffer) {
      if (quarantined[buffer] == 0) continue;
      bool held = false;
      const bool claimed = is_claimed(buffer);
      for (std::uint32_t row = 0; claimed && row < quarantined[buffer]; ++row) {
        held = held || words[buffer][row].state() == RowState::kMissed;
      }
      if (held) {
        all_back = false;
        continue;
      }
      quarantined[buffer] = 0;
      free_buffer(buffer);
    }
    return all_back;
  }

  void free_buffer(std::uint32_t buffer) {
    for (auto& word : words[buffer]) word.clear();
    free_buffers |= 1u << buffer;
    if (open.load(std::memory_order_relaxed) == 0) open_buffer();
  }

  void open_buffer() {
    if (free_buffers == 0) return;
    const std::uint32_t buffer = (free_buffers & 1) != 0 ? 0 : 1;
    free_buffers &= ~(1u << buffer);
    claims[buffer].open();
    open.store(buffer + 1, std::memory_order_release);
    opened.ring();
  }
};

/// One asks three times, reads two numbers of each reply or gives up at any moment; one answers, as
/// late as can be.
template <Fault kFault, Broken kBroken>
struct ReplyModel : rl::test_suite<ReplyModel<kFault, kBroken>, 2> {
  static constexpr int kUses = 3;
  BasicReplyWord<ModelAtomics<kFault>> word;
  // What is not under test brings no order of its own, where it can be helped.
  BasicDoorbell<ModelAtomics<Fault::kNone>> work;
  BasicDoorbell<ModelAtomics<Fault::kNone>> done;
  ModelWord<Fault::kRelaxedOrders> offered;  // the last generation
  ModelWord<Fault::kRelaxedOrders> over;
  rl::var<int> question;
  rl::var<int> reply[2];

  void thread(unsigned index) {
    if (index == 0) {
      for (int use = 1; use <= kUses; ++use) ask(use);
      over.store(1, std::memory_order_relaxed);
      work.ring();
    } else {
      answer_all();
    }
  }

  void ask(int use) {
    question($) = use;
    for (auto& number : reply) number($) = 0;
    const std::uint32_t generation = word.queue();
    offered.store(generation, std::memory_order_relaxed);
    work.ring();
    if (rl::rand(2) == 0) {
      const bool is_free = word.abandon(generation);
      if (!is_free && kBroken != Broken::kReusesAbandoned) await(ReplyState::kFree);
      return;
    }
    await(ReplyState::kDone);
    for (auto& number : reply) RL_ASSERT(number($) == use * 10);
    word.release(generation);
    RL_ASSERT(word.state() == ReplyState::kFree);
  }

  void await(ReplyState state) {
    for (;;) {
      const std::uint32_t seen = done.generation();
      if (word.state() == state) return;
      static_cast<void>(done.park(seen, os::kNoDeadline));
    }
  }

  void answer_all() {
    for (;;) {
      const std::uint32_t seen = work.generation();
      const bool last = over.load(std::memory_order_relaxed) != 0;
      const std::uint32_t generation = offered.load(std::memory_order_relaxed);
      if (word.begin(generation) || kBroken == Broken::kAnswersUnbegun) {
        const int use = question($);
        for (auto& number : reply) number($) = use * 10;
        static_cast<void>(word.finish(generation));
        done.ring();
      }
      if (last) return;
      static_cast<void>(work.park(seen, os::kNoDeadline));
    }
  }
};

constexpr Course kImpatient{};
constexpr Course kPatient{.owner_is_patient = true};
constexpr Course kCancelling{.asker_cancels = true};
constexpr Course kDying{.claimer_dies = true};
constexpr Course kEverything{.asker_cancels = true, .claimer_dies = true};

template <Fault kFault, Broken kBroken, Course kCourse, std::uint32_t kRows = 2>
using Batches = BatchModel<kFault, kBroken, kCourse, kRows>;

template <Course kCourse, std::uint32_t kRows = 2>
using Sound = Batches<Fault::kNone, Broken::kNothing, kCourse, kRows>;

TEST(RequestsModel, EveryRowIsClaimedOnceAndBeforeTheBatchIsClosed) {
  expect_clean<ClaimsModel<Fault::kNone>>(rl::random_scheduler_type);
  expect_clean<ClaimsModel<Fault::kNone>>(rl::fair_context_bound_scheduler_type);
}

// Random where a wait has a deadline or the model is large: Relacy's exhaustive scheduler loses
// those threads, or does not end.
TEST(RequestsModel, EveryRowIsAnsweredOnceAndWhole) {
  expect_clean<Sound<kPatient>>(rl::random_scheduler_type, 30'000);
  expect_clean<Sound<kImpatient>>(rl::random_scheduler_type, 30'000);
  expect_clean<Sound<kImpatient, 1>>(rl::random_scheduler_type, 30'000);
}

TEST(RequestsModel, ACancelledRowLeavesItsSlotToTheNext) {
  expect_clean<Sound<kCancelling>>(rl::random_scheduler_type, 30'000);
}

TEST(RequestsModel, AClaimerThatDiesOnAnyLineCostsTheOthersNothing) {
  expect_clean<Sound<kDying>>(rl::random_scheduler_type, 30'000);
  expect_clean<Sound<kDying, 1>>(rl::random_scheduler_type, 30'000);
  expect_clean<Sound<kEverything>>(rl::random_scheduler_type, 30'000);
}

TEST(RequestsModel, AReplyIsOfItsQuestionHoweverLateTheAnswererIs) {
  expect_clean<ReplyModel<Fault::kNone, Broken::kNothing>>(rl::random_scheduler_type);
  expect_clean<ReplyModel<Fault::kNone, Broken::kNothing>>(rl::fair_context_bound_scheduler_type);
}

TEST(RequestsModel, AStepOutOfPlaceIsNoticed) {
  constexpr auto kSuccess = rl::test_result_success;
  constexpr unsigned kMany = 30'000;
  EXPECT_NE((result_of<Batches<Fault::kNone, Broken::kAnnouncesLate, kPatient>>(kMany)), kSuccess);
  EXPECT_NE((result_of<Batches<Fault::kNone, Broken::kEndsEarly, kPatient>>(kMany)), kSuccess);
  EXPECT_EQ((result_of<Batches<Fault::kNone, Broken::kRingsForRowsOnly, kDying, 1>>(kMany)),
            rl::test_result_deadlock);
  EXPECT_EQ((result_of<Batches<Fault::kNone, Broken::kWaitsForReady, kDying, 1>>()),
            rl::test_result_deadlock);
  EXPECT_NE((result_of<Batches<Fault::kNone, Broken::kFreesAtOnce, kImpatient>>(kMany)), kSuccess);
  EXPECT_NE((result_of<Batches<Fault::kNone, Broken::kAnswersUnbegun, kCancelling>>()), kSuccess);
  EXPECT_NE((result_of<Batches<Fault::kNone, Broken::kReusesAbandoned, kCancelling>>()), kSuccess);
  EXPECT_EQ((result_of<ReplyModel<Fault::kNone, Broken::kAnswersUnbegun>>()),
            rl::test_result_data_race);
  EXPECT_EQ((result_of<ReplyModel<Fault::kNone, Broken::kReusesAbandoned>>()),
            rl::test_result_data_race);
}

TEST(RequestsModel, AClaimInTwoStepsIsNoticed) {
  EXPECT_NE(result_of<ClaimsModel<Fault::kTornExchange>>(), rl::test_result_success);
  EXPECT_NE((result_of<Batches<Fault::kTornExchange, Broken::kNothing, kPatient>>()),
            rl::test_result_success);
}

TEST(RequestsModel, AMissingOrderOrWakeUpIsNoticed) {
  EXPECT_NE(result_of<ClaimsModel<Fault::kRelaxedOrders>>(), rl::test_result_success);
  EXPECT_EQ((result_of<Batches<Fault::kRelaxedOrders, Broken::kNothing, kPatient>>()),
            rl::test_result_data_race);
  EXPECT_EQ((result_of<ReplyModel<Fault::kRelaxedOrders, Broken::kNothing>>()),
            rl::test_result_data_race);
  EXPECT_EQ((result_of<Batches<Fault::kNoWake, Broken::kNothing, kPatient>>()),
            rl::test_result_deadlock);
}

}  // namespace
}  // namespace shoal::sync
