// Stands in for raylib, with which PufferLib's CartPole draws itself: benchmarks only step it. Just the names that its sources
// use, without any effect.
#pragma once

typedef struct Color {
  unsigned char r, g, b, a;
} Color;

typedef struct Vector2 {
  float x, y;
} Vector2;

enum { KEY_TAB = 258, KEY_ESCAPE = 256 };

static inline void InitWindow(int width, int height, const char* title) {}
static inline void CloseWindow(void) {}
static inline void SetTargetFPS(int fps) {}
static inline _Bool IsKeyDown(int key) { return 0; }
static inline _Bool IsKeyPressed(int key) { return 0; }
static inline void ToggleFullscreen(void) {}
static inline void BeginDrawing(void) {}
static inline void EndDrawing(void) {}
static inline void ClearBackground(Color color) {}
static inline void DrawLine(int x0, int y0, int x1, int y1, Color color) {}
static inline void DrawLineEx(Vector2 from, Vector2 to, float thick, Color color) {}
static inline void DrawRectangle(int x, int y, int width, int height, Color color) {}
static inline void DrawText(const char* text, int x, int y, int size, Color color) {}
static inline const char* TextFormat(const char* text, ...) { return text; }
